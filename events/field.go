package events

import (
	"crypto/sha256"
	"fmt"
	"math"
	"slices"
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

// check collects the first failed expectation of a payload. What was expected is put into words only where that failed: a
// plan of 1,000 nodes has thousands of expectations.
type check struct{ err error }

func (c *check) that(holds bool, field, expected string, got any) {
	if c.err == nil && !holds {
		c.err = &FieldError{Field: field, Expected: expected, Got: fmt.Sprintf("%v", got)}
	}
}

func (c *check) token(field, id string) {
	if !Token(id) {
		c.that(false, field, "1 to 64 characters of A-Z a-z 0-9 - _", fmt.Sprintf("%.80q", id))
	}
}

// mostReason is how many bytes of a reason may travel.
const mostReason = 1024

func (c *check) reason(text string) {
	if len(text) > mostReason {
		c.that(false, "reason", fmt.Sprintf("at most %d bytes", mostReason), fmt.Sprintf("%d bytes", len(text)))
	}
}

func (c *check) digest(field, digest string) {
	if !isDigest(digest) {
		c.that(false, field, "sha256: and 64 hex digits", fmt.Sprintf("%.80q", digest))
	}
}

func (c *check) atLeast(field string, value, least int64) {
	if value < least {
		c.that(false, field, fmt.Sprintf("at least %d", least), value)
	}
}

func (c *check) atMost(field string, count, most int) {
	if count > most {
		c.that(false, field, fmt.Sprintf("at most %d", most), count)
	}
}

func (c *check) layerBytes(field string, bytes int64) {
	const most = 1 << 48 // 256 TiB, so that no sum over the layers of a pipeline overflows
	if bytes < 0 || bytes > most {
		c.that(false, field, fmt.Sprintf("0 to %d", most), bytes)
	}
}

func (c *check) amount(field string, value float64) {
	c.that(value >= 0 && !math.IsInf(value, 1), field, "a finite number of at least 0", value)
}

func (c *check) units(units Range) {
	if units.First < 0 || units.First >= units.End || units.End > MostUnits {
		c.that(false, "units", fmt.Sprintf("0 <= first < end <= %d", MostUnits), units)
	}
}

func (c *check) unit(unit int) {
	if unit < 0 || unit >= MostUnits {
		c.that(false, "unit", fmt.Sprintf("0 to %d", MostUnits-1), unit)
	}
}

func (c *check) bounds(field string, b Bounds) {
	c.that(b.Min >= 0 && (b.Max == 0 || b.Max >= b.Min), field, "0 <= min <= max, or max 0 for open", b)
}

func (c *check) oneOf(field, value string, words ...string) {
	if !slices.Contains(words, value) {
		named := slices.DeleteFunc(words, func(word string) bool { return word == "" })
		c.that(false, field, strings.Join(named, " or "), fmt.Sprintf("%.80q", value))
	}
}

func (c *check) nested(field string, err error) {
	if c.err == nil && err != nil {
		c.err = fmt.Errorf("%s: %w", field, err)
	}
}

func (c *check) each(count int, field string, validate func(i int) error) {
	for i := 0; c.err == nil && i < count; i++ {
		if err := validate(i); err != nil {
			c.err = fmt.Errorf("%s[%d]: %w", field, i, err)
		}
	}
}
