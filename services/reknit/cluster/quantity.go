package cluster

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// Size is bytes, written with their unit, such as 24GiB.
type Size int64

// Rate is bytes a second, written such as 10Gbit/s.
type Rate float64

// Span is seconds, written such as 250ms.
type Span float64

// unit is a suffix and what it multiplies by. A suffix that ends like another stands before it.
type unit struct {
	suffix string
	factor float64
}

var sizes = []unit{
	{"KiB", 1 << 10}, {"MiB", 1 << 20}, {"GiB", 1 << 30}, {"TiB", 1 << 40},
	{"kB", 1e3}, {"MB", 1e6}, {"GB", 1e9}, {"TB", 1e12}, {"B", 1},
}

var rates = []unit{
	{"kbit/s", 1e3 / 8}, {"Mbit/s", 1e6 / 8}, {"Gbit/s", 1e9 / 8},
	{"KiB/s", 1 << 10}, {"MiB/s", 1 << 20}, {"GiB/s", 1 << 30},
	{"kB/s", 1e3}, {"MB/s", 1e6}, {"GB/s", 1e9}, {"B/s", 1},
}

func (s *Size) UnmarshalText(text []byte) error {
	value, ok := quantity(string(text), sizes)
	if !ok || value > math.MaxInt64/2 {
		return fmt.Errorf("a size with its unit, such as 24GiB or 500MB")
	}
	*s = Size(value)
	return nil
}

func (r *Rate) UnmarshalText(text []byte) error {
	value, ok := quantity(string(text), rates)
	if !ok || value <= 0 {
		return fmt.Errorf("a rate above 0 with its unit, such as 10Gbit/s or 120MB/s")
	}
	*r = Rate(value)
	return nil
}

func (s *Span) UnmarshalText(text []byte) error {
	value, err := time.ParseDuration(string(text))
	if err != nil || value < 0 {
		return fmt.Errorf("a time with its unit, such as 250ms or 6h")
	}
	*s = Span(value.Seconds())
	return nil
}

// quantity reads a finite number of at least 0 and the unit after it.
func quantity(text string, units []unit) (float64, bool) {
	for _, unit := range units {
		if digits, found := strings.CutSuffix(text, unit.suffix); found {
			value, err := strconv.ParseFloat(strings.TrimSpace(digits), 64)
			value *= unit.factor
			return value, err == nil && value >= 0 && !math.IsInf(value, 1)
		}
	}
	return 0, false
}
