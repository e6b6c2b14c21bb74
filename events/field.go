package events

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"strings"
)

// FieldError names a field of a payload that is wrong and what was expected there.
type FieldError struct{ Field, Expected, Got string }

func (e *FieldError) Error() string {
	return fmt.Sprintf("field %q: expected %s, got %s", e.Field, e.Expected, e.Got)
}

// Token reports whether id may stand in a subject: 1 to 64 characters of A-Z a-z 0-9 - _.
func Token(id string) bool {
	return len(id) >= 1 && len(id) <= 64 && only(id, "-_", 'A', 'Z', 'a', 'z', '0', '9')
}

const digestPrefix = "sha256:"

// isDigest reports whether text is what Digest returns.
func isDigest(text string) bool {
	hex, found := strings.CutPrefix(text, digestPrefix)
	return found && len(hex) == 2*sha256.Size && only(hex, "", 'a', 'f', '0', '9')
}

// only reports whether text has no other characters than some, and those of ranges given by their first and last. (A
// regular expression took most of the time of reading a plan.)
func only(text, some string, ranges ...byte) bool {
	for i := range len(text) {
		c, within := text[i], false
		for r := 0; r < len(ranges); r += 2 {
			within = within || ranges[r] <= c && c <= ranges[r+1]
		}
		if !within && strings.IndexByte(some, c) < 0 {
			return false
		}
	}
	return true
}

// check collects the first failed expectation of a payload. An expectation is put into words only if it failed: a plan of 1,000 nodes has
// thousands of them.
type check struct{ err error }

// ranges checks that ranges of units hold some.
func (c *check) ranges(field string, ranges []Range) {
	for _, units := range ranges {
		c.rule("range", units.First < units.End, field, fmt.Sprintf("0 <= first < end <= %d", MostUnits), units)
	}
}

func (c *check) bounds(field string, b Bounds) {
	c.rule("job", b.Max == 0 || b.Max >= b.Min, field, "0 <= min <= max, or max 0 for open", b)
}

// nested takes over what is wrong with the value of a field.
func (c *check) nested(field string, err error) {
	if c.err == nil {
		c.err = inside(field, err)
	}
}

// inside puts a field's name before that of the field in it that an error is about.
func inside(field string, err error) error {
	if err == nil || field == "" {
		return err
	}
	if at, is := errors.AsType[*FieldError](err); is {
		_ = at.within(field) // it is the error itself
		return err
	}
	if broken, is := errors.AsType[*RuleError](err); is {
		return &RuleError{broken.Rule, inside(field, broken.Err)}
	}
	return fmt.Errorf("%s: %w", field, err)
}
