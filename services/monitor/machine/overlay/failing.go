package overlay

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/reknit/reknit/events"
)

// Failing is a node that cannot write its parts of snapshots to a tier, as it told.
type Failing struct {
	Node    string    `json:"node"`
	Finding string    `json:"finding"` // as in snapshot.failed
	Reason  string    `json:"reason"`
	Since   time.Time `json:"since"`
}

// takeFailing hears that a node's part was not written, or is again.
func (o *Overlay) takeFailing(event events.Event) {
	switch event.Kind {
	case events.SnapshotFailed:
		if told, err := events.Open[events.SnapshotFailure](event); err == nil {
			tier := o.tier(told.Tier)
			if tier.failing == nil {
				tier.failing = map[string]Failing{}
			}
			since := event.Logged
			if before, fails := tier.failing[told.Node]; fails {
				since = before.Since
			}
			tier.failing[told.Node] = Failing{told.Node, told.Finding, told.Reason, since}
		}
	case events.SnapshotResumed:
		if told, err := events.Open[events.SnapshotPart](event); err == nil {
			delete(o.tier(told.Tier).failing, told.Node)
		}
	}
}

// endsFailing takes that a node's process has ended, or is another one, which tells anew what it cannot write.
func (o *Overlay) endsFailing(node string) {
	for _, tier := range o.snapshots {
		delete(tier.failing, node)
	}
}

// known returns the tier with who cannot write to it, in the order of their names.
func (s Snapshot) known() Snapshot {
	s.Failing = nil
	for _, node := range slices.Sorted(maps.Keys(s.failing)) {
		s.Failing = append(s.Failing, s.failing[node])
	}
	return s
}

// SaysFailing tells which nodes cannot write to the tier, since when and why, and what helps; empty where all can.
func (s Snapshot) SaysFailing(now time.Time) (says, todo string) {
	if len(s.Failing) == 0 {
		return "", ""
	}
	since := slices.MinFunc(s.Failing, func(a, b Failing) int { return a.Since.Compare(b.Since) }).Since
	var nodes []string
	for _, failing := range s.Failing[:min(mostNamed, len(s.Failing))] {
		nodes = append(nodes, failing.Node)
	}
	who := strings.Join(nodes, ", ")
	if others := len(s.Failing) - mostNamed; others > 0 {
		who += fmt.Sprintf(" and %d more", others)
	}
	first := s.Failing[0]
	says = fmt.Sprintf("%s cannot write snapshots to %s since %s, %v ago: %s", who, s.Tier, since.Local().Format("15:04:05"),
		now.Sub(since).Round(time.Second), events.Shorten(first.Reason, mostReason))
	if todo = mends[first.Finding]; first.Finding == "full" && strings.Contains(first.Reason, bound) {
		todo = "raise it, or take away what lies there: the next one is tried by itself"
	}
	return says, cmp.Or(todo, mends["other"])
}

const bound = "REKNIT_SNAPSHOT_BYTES" // which a reason names where it is that and no disk which has no room

// mends says what helps against a finding.
var mends = map[string]string{
	"full":      "make room there, or give snapshots a larger disk (REKNIT_SNAPSHOT_FOLDER): the next one is tried by itself",
	"read-only": "mount the disk for writing: the next snapshot is tried by itself",
	"refused":   "give the agent the right to write there, or the keys of the bucket",
	"slow":      "take fewer snapshots (REKNIT_SNAPSHOT_DISK_EVERY, REKNIT_SNAPSHOT_REMOTE_EVERY), or use a faster store",
	"other":     "see the logs of the agents (snapshot not written)",
}

const mostReason = 320 // bytes: half of it has room for a folder and what is wrong with it
