package consent

import (
	"fmt"
	"strings"
	"time"
)

const clock = "15:04"

// inHours objects to who comes at another time of the day. The end is not one of the hours, and may lie on the next day.
func inHours(p Policy, question Question) string {
	from, to, err := p.hours()
	if err != nil || from == to {
		return ""
	}
	now := sinceMidnight(question.At.UTC())
	inside := from <= now && now < to
	if to < from {
		inside = from <= now || now < to
	}
	if inside {
		return ""
	}
	return fmt.Sprintf("it is %s UTC, and nodes may join at %s", question.At.UTC().Format(clock), p.Hours)
}

// hours are those of the policy, since midnight; equal where every hour is one.
func (p Policy) hours() (from, to time.Duration, err error) {
	if p.Hours == "" {
		return 0, 0, nil
	}
	first, end, _ := strings.Cut(p.Hours, "-")
	begins, err := time.Parse(clock, first)
	if err != nil {
		return 0, 0, err
	}
	ends, err := time.Parse(clock, end)
	return sinceMidnight(begins), sinceMidnight(ends), err
}

func sinceMidnight(at time.Time) time.Duration {
	return time.Duration(at.Hour())*time.Hour + time.Duration(at.Minute())*time.Minute
}
