package overlay

import (
	"strings"
	"testing"

	"github.com/reknit/reknit/events"
)

func TestOfALossThatIsNotFiniteTheFirstStepAndTheSnapshotOfBeforeAreNamed(t *testing.T) {
	for _, c := range []struct {
		tiers []Snapshot
		says  []string
	}{
		{nil, []string{"not finite since step 27", "begin anew", "no snapshot from before is known"}},
		{[]Snapshot{{Tier: "disk", Step: 20}, {Tier: "remote", Step: 10}},
			[]string{"that of step 20 (disk) stays", "goes on from step 20"}},
		{[]Snapshot{{Tier: "disk", Step: 40}, {Tier: "remote", Step: 10}},
			[]string{"that of step 10 (remote) stays", "goes on from step 10"}},
		{[]Snapshot{{Tier: "memory", Step: 26}}, []string{"no snapshot from before is known"}}, // it ends with the processes
	} {
		says, todo := Diverged(27, c.tiers)
		for _, words := range c.says {
			if told := says + ": " + todo; !strings.Contains(told, words) {
				t.Errorf("with %+v it says %q: expected %q", c.tiers, told, words)
			}
		}
	}
}

func TestAnAgentOfABuildBeforeTellsNoFirstStep(t *testing.T) {
	for _, c := range []struct {
		pulse events.Pulse
		since uint64
	}{
		{events.Pulse{Step: 9, Loss: 1}, 0},
		{events.Pulse{Step: 9, LossNotFinite: true}, 9},
		{events.Pulse{Step: 9, LossNotFinite: true, LossNotFiniteSince: 4}, 4},
		{events.Pulse{Step: 9, LossNotFinite: true, LossNotFiniteSince: 400}, 9}, // a liar
	} {
		if since := DivergedSince(c.pulse); since != c.since {
			t.Errorf("%+v: since step %d, expected %d", c.pulse, since, c.since)
		}
	}
}
