package stream

import (
	"strings"
	"unique"
)

// filter is a set of subjects: plain ones, ones whose last token is "*", and ones that end in ">". These are what
// Reknit uses, and they are found by looking up.
type filter struct {
	plain    map[string]bool
	families map[family]bool // true: with whatever last token; false: of some plain subjects
	each     []family        // of these
	depths   []string        // prefixes before ">"
}

// family is a subject without its last token.
type family = unique.Handle[string]

func familyOf(subject string) family {
	return unique.Make(subject[:strings.LastIndexByte(subject, '.')+1])
}

func newFilter(subjects ...string) filter {
	f := filter{plain: map[string]bool{}, families: map[family]bool{}}
	for _, subject := range subjects {
		if prefix, isDepth := strings.CutSuffix(subject, ">"); isDepth {
			f.depths = append(f.depths, prefix)
			continue
		}
		of, isFamily := familyOf(subject), strings.HasSuffix(subject, "*")
		if _, known := f.families[of]; !known {
			f.each = append(f.each, of)
		}
		f.families[of] = f.families[of] || isFamily
		if !isFamily {
			f.plain[subject] = true
		}
	}
	return f
}

func (f filter) takes(message *Message) bool {
	if all, some := f.families[message.family]; all || some && f.plain[message.Subject] {
		return true
	}
	for _, prefix := range f.depths {
		if strings.HasPrefix(message.Subject, prefix) {
			return true
		}
	}
	return false
}
