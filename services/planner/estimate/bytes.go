package estimate

import "fmt"

// Bytes is an amount of memory that people read: in three digits, and the largest unit of which there is one.
type Bytes int64

func (b Bytes) String() string {
	value, unit := float64(b), "B"
	for _, next := range []string{"KiB", "MiB", "GiB", "TiB"} {
		if value < 999.5 { // which three digits make a thousand
			break
		}
		value, unit = value/1024, next
	}
	return fmt.Sprintf("%.3g %s", value, unit)
}
