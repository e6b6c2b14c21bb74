package stream

import "strings"

// filter is a set of subjects: plain ones, ones whose last token is "*", and ones that end in ">". These are what
// Reknit uses, and they are found by looking up.
type filter struct {
	plain    map[string]bool
	families map[string]bool // subjects without their last token
	depths   []string        // prefixes before ">"
}

func newFilter(subjects ...string) filter {
	f := filter{plain: map[string]bool{}, families: map[string]bool{}}
	for _, subject := range subjects {
		if family, isFamily := strings.CutSuffix(subject, "*"); isFamily {
			f.families[family] = true
		} else if prefix, isDepth := strings.CutSuffix(subject, ">"); isDepth {
			f.depths = append(f.depths, prefix)
		} else {
			f.plain[subject] = true
		}
	}
	return f
}

func (f filter) takes(subject string) bool {
	if f.families[subject[:strings.LastIndexByte(subject, '.')+1]] || f.plain[subject] {
		return true
	}
	for _, prefix := range f.depths {
		if strings.HasPrefix(subject, prefix) {
			return true
		}
	}
	return false
}
