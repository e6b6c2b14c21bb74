package overlay

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/reknit/reknit/events"
)

// SnapshotKinds are the events that tell of snapshots.
var SnapshotKinds = []events.Kind{events.SnapshotCompleted, events.SnapshotOverdue, events.SnapshotFailed, events.SnapshotResumed}

// Snapshot is what the log tells last of a tier of snapshots.
type Snapshot struct {
	Tier      string         `json:"tier"`
	Step      uint64         `json:"step"`                // of the last that is complete, in completed steps; zero: none is
	At        time.Time      `json:"at,omitzero"`         // when that was said
	Every     uint64         `json:"every,omitempty"`     // steps between the last two; zero: not known
	Overdue   uint64         `json:"overdue,omitempty"`   // step of one behind it that is not complete; zero: none is late
	Unwritten []events.Range `json:"unwritten,omitempty"` // units of that which nobody wrote

	Failing []Failing `json:"failing,omitempty"` // nodes that cannot write to it, in the order of their names

	// Folders are where it lies on the disks of nodes, by node, as far as they told.
	Folders map[string]string `json:"-"`

	before  uint64 // Every, before the last was complete
	failing map[string]Failing
}

// lateTurns is how many snapshots in a row may be missing. One that takes longer to write than lies between two has the next
// skipped, and one is skipped while a plan changes.
const lateTurns = 4

// Outlives reports whether it outlives the processes whose state it has.
func (s Snapshot) Outlives() bool { return s.Tier != "memory" }

// NewestOf returns the newest complete one that outlives the processes; its step is zero where there is none.
func NewestOf(tiers []Snapshot) (newest Snapshot) {
	for _, tier := range tiers {
		if tier.Outlives() && tier.Step > newest.Step {
			newest = tier
		}
	}
	return newest
}

// Late reports whether snapshots that were to be complete by a step are not.
func (s Snapshot) Late(step uint64) bool {
	if s.Step == 0 {
		return s.Overdue > 0 || len(s.Failing) > 0
	}
	return s.Every > 0 && step > s.Step+lateTurns*s.Every
}

// Says tells how late a tier is, and why as far as that is known.
func (s Snapshot) Says(now time.Time) string {
	says := fmt.Sprintf("no snapshot was complete in %s yet", s.Tier)
	if s.Step > 0 {
		says = fmt.Sprintf("no snapshot is complete in %s since step %d, %v ago", s.Tier, s.Step, now.Sub(s.At).Round(time.Second))
	}
	if s.Overdue > 0 {
		var units []string
		for _, r := range s.Unwritten {
			units = append(units, fmt.Sprintf("%d to %d", r.First, r.End-1))
		}
		says += fmt.Sprintf(": of step %d nobody wrote the units %.200s", s.Overdue, strings.Join(units, ", "))
	}
	return says
}

// Newest tells which complete snapshot the tier has, and how old it is.
func (s Snapshot) Newest(now time.Time) string {
	if s.Step == 0 {
		return "none is complete yet"
	}
	return fmt.Sprintf("step %d complete, %v ago", s.Step, now.Sub(s.At).Round(time.Second))
}

// In tells in which folder the tier lies, where all nodes have the same, or in which some have theirs; empty: nobody told.
func (s Snapshot) In() string {
	folders := map[string][]string{}
	for _, node := range slices.Sorted(maps.Keys(s.Folders)) {
		folders[s.Folders[node]] = append(folders[s.Folders[node]], node)
	}
	all := slices.Sorted(maps.Keys(folders))
	if len(all) == 1 {
		return all[0]
	}
	var says []string
	for _, folder := range all[:min(mostNamed, len(all))] {
		says = append(says, fmt.Sprintf("%s (%s)", folder, listed(folders[folder])))
	}
	if more := len(all) - mostNamed; more > 0 {
		says = append(says, fmt.Sprintf("%d more", more))
	}
	return strings.Join(says, ", ")
}

// plainFolder is one that may be pasted into a shell: nodes say what they are called.
var plainFolder = regexp.MustCompile(`^[A-Za-z0-9/._-]+$`)

// GoOn tells how training goes on from the snapshot where all processes have ended.
func (s Snapshot) GoOn() string {
	where := "REKNIT_SNAPSHOT_BUCKET"
	if in := s.In(); s.Tier == diskTier && plainFolder.MatchString(in) {
		where = "REKNIT_SNAPSHOT_FOLDER=" + in
	} else if s.Tier == diskTier {
		where = strings.TrimSuffix("the REKNIT_SNAPSHOT_FOLDER that each had: "+in, ": ")
	}
	return fmt.Sprintf("start the scripts again by the names that their nodes had, with %s: training goes on from step %d", where, s.Step)
}

// Snapshots lists what is known of each tier, in the order of their names.
func (o *Overlay) Snapshots() (all []Snapshot) {
	for _, tier := range slices.Sorted(maps.Keys(o.snapshots)) {
		all = append(all, o.snapshots[tier].known())
		if tier == diskTier {
			all[len(all)-1].Folders = maps.Clone(o.folders)
		}
	}
	return all
}

const diskTier = "disk"

// mostFolders is of how many nodes it is remembered where they write snapshots.
const mostFolders = 1 << 12

// takeFolder notes where a node that asks for a place writes snapshots.
func (o *Overlay) takeFolder(join events.Join) {
	delete(o.folders, join.Node)
	if join.SnapshotFolder != "" && len(o.folders) < mostFolders {
		o.folders[join.Node] = join.SnapshotFolder
	}
}

func (o *Overlay) takeSnapshot(event events.Event) {
	switch event.Kind {
	case events.SnapshotCompleted:
		if told, err := events.Open[events.CompleteSnapshot](event); err == nil {
			s := o.tier(told.Tier)
			s.before = s.Every
			if s.Step > 0 && told.Step > s.Step && s.Step != o.halted && told.Step != o.halted {
				s.Every = told.Step - s.Step
			}
			s.Step, s.At, s.Overdue, s.Unwritten = told.Step, event.Logged, 0, nil
		}
	case events.SnapshotOverdue:
		if told, err := events.Open[events.OverdueSnapshot](event); err == nil {
			s := o.tier(told.Tier)
			s.Overdue, s.Unwritten = told.Step, told.Units
		}
	default:
		o.takeFailing(event)
	}
}

// haltSnapshots takes that training stopped behind a step, of which all tiers have a snapshot: it was due for that, and tells nothing
// of how many steps lie between two.
func (o *Overlay) haltSnapshots(step uint64) {
	o.halted = step
	for _, s := range o.snapshots {
		if s.Step == step {
			s.Every = s.before
		}
	}
}

func (o *Overlay) tier(name string) *Snapshot {
	if o.snapshots[name] == nil {
		o.snapshots[name] = &Snapshot{Tier: name}
	}
	return o.snapshots[name]
}
