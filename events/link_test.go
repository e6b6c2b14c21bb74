package events

import (
	"fmt"
	"testing"
)

// services/planner/README.md and services/reknit/plan/README.md tell these figures.
func TestLinksAreToldApartByTheFiguresOfThePages(t *testing.T) {
	for _, test := range []struct {
		about       string
		uncertainty float64
		want        string
	}{
		{"a link that was measured once", 0, "3.000"},
		{"five probes that agree", 0.13, "1.445"},
		{"eight probes that agree", 0.08, "1.252"},
		{"a link that a file says may be off by a tenth", 0.1, "1.326"},
		{"a link that a file states", Exact, "1.000"},
		{"an uncertainty that is a half with its margin", 0.4, "3.000"},
	} {
		measured := Measurement{Uncertainty: test.uncertainty}
		if got := fmt.Sprintf("%.3f", measured.Spread(Measurement{Uncertainty: Exact})); got != test.want {
			t.Errorf("%s: told apart from %s times on, expected %s", test.about, got, test.want)
		}
	}
}
