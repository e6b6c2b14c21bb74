package snapshots

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/reknit/reknit/events"
	"github.com/reknit/reknit/services/agent/machine"
	"github.com/reknit/reknit/services/agent/retention"
)

// complete returns the newest step of which nodes can read all three units together, as the negotiator looks for it.
func (s *scene) complete(nodes ...*Snapshots) (newest uint64) {
	have := map[uint64]map[int]bool{}
	for _, node := range nodes {
		for _, snapshot := range node.List(s.t.Context(), nil) {
			for _, units := range snapshot.Units {
				for unit := units.First; unit < units.End; unit++ {
					if have[snapshot.Step] == nil {
						have[snapshot.Step] = map[int]bool{}
					}
					have[snapshot.Step][unit] = true
				}
			}
		}
	}
	for step, units := range have {
		if len(units) == 3 {
			newest = max(newest, step)
		}
	}
	return newest
}

// cannotWrite has nothing be written of a node's snapshots of these steps, as where a disk is broken.
func (s *scene) cannotWrite(node string, steps ...uint64) {
	jobs, err := filepath.Glob(filepath.Join(s.own[node], "c", "*"))
	if err != nil || len(jobs) == 0 {
		s.t.Fatal("the node has no snapshot yet", err)
	}
	for _, step := range steps {
		in := filepath.Join(jobs[0], strings.Split(folder(retention.ID{Step: step, Plan: s.digest()}, node), "/")[0])
		if err := os.WriteFile(in, nil, 0o600); err != nil {
			s.t.Fatal(err)
		}
	}
}

// A pipeline: a holds units 0-1, b holds unit 2, and each writes what it holds to a folder of its own.
func TestANodeThatCannotWriteTakesTheLastCompleteSnapshotFromNobody(t *testing.T) {
	s := newScene(t)
	a, b := s.open("a"), s.open("b")
	for step := uint64(8); step <= 16; step += 8 {
		s.captures(a, machine.DiskTier, step, 0, 2)
		s.captures(b, machine.DiskTier, step, 2, 3)
		s.tells(step)
	}
	s.cannotWrite("b", 24, 32, 40)
	for step := uint64(24); step <= 400; step += 8 {
		s.captures(a, machine.DiskTier, step, 0, 2)
		if step <= 40 {
			s.captures(b, machine.DiskTier, step, 2, 3)
		}
		if at := s.complete(a, b); at != 16 {
			t.Fatalf("at step %d the newest complete snapshot is of step %d: expected 16 to be kept until there is another", step, at)
		}
	}
	if parts := len(s.lists(a)); parts > 2+mostOpen+1 {
		t.Errorf("a keeps %d parts while b writes none: expected a bound", parts)
	}
}

func TestASlowDiskAndAFastOneHaveSnapshotsInCommon(t *testing.T) {
	s := newScene(t)
	a, b := s.open("a"), s.open("b")
	newest, writing := uint64(0), uint64(0)
	for step := uint64(8); step <= 400; step += 8 {
		s.captures(a, machine.DiskTier, step, 0, 2)
		switch {
		case writing == 0:
			writing = step
		case step >= writing+20: // 2.5 intervals later b has it
			s.captures(b, machine.DiskTier, writing, 2, 3)
			s.tells(writing)
			writing = 0
		}
		at := s.complete(a, b)
		if at < newest {
			t.Fatalf("at step %d the newest complete snapshot is of step %d, and was of step %d", step, at, newest)
		}
		newest = at
	}
	if newest < 360 {
		t.Errorf("at step 400 the newest complete snapshot is of step %d", newest)
	}
}

// room is a folder on a disk of so many bytes.
func room(t *testing.T, bytes string) string {
	dir := t.TempDir()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size="+bytes); err != nil {
		t.Skipf("no disk that can be filled without root: %v", err)
	}
	t.Cleanup(func() { syscall.Unmount(dir, syscall.MNT_DETACH) })
	return dir
}

func TestAFullDiskGivesUpTheOldestSnapshotAndNeverTheNewestCompleteOne(t *testing.T) {
	s := newScene(t)
	s.own["a"] = room(t, "64k") // of pages of 4 KiB: three units and a manifest take four, a folder none
	s.plan.Nodes = append(s.plan.Nodes, events.Member{Node: "a"})
	a := s.open("a")
	fill := filepath.Join(s.own["a"], "others")
	if err := os.WriteFile(fill, make([]byte, 28<<10), 0o600); err != nil { // nine pages are left: for two parts
		t.Fatal(err)
	}
	for step := uint64(8); step <= 400; step += 8 {
		s.captures(a, machine.DiskTier, step, 0, 3)
		if step == 16 {
			s.tells(8) // the rest nobody else writes
		}
	}
	s.expectReadable(a, "400: 0-3", "8: 0-3")
	if files := len(s.files(s.own["a"])); files != 1+2*4+1 {
		t.Errorf("%d files: expected two parts of four and the mark of the plan beside", files)
	}
	folders, _ := filepath.Glob(filepath.Join(s.own["a"], "c", "*", "0*"))
	if len(folders) != 2 {
		t.Errorf("%d folders of snapshots are left", len(folders))
	}
}

func TestWhatCouldNotBeWrittenIsRemovedAtOnce(t *testing.T) {
	s := newScene(t)
	a := s.open("a")
	s.captures(a, machine.DiskTier, 8, 0, 3)
	before := s.files(s.own["a"])
	disk := a.tiers[slices.IndexFunc(a.tiers, func(t *tier) bool { return t.name == machine.DiskTier })]
	id := retention.ID{Step: 16, Plan: s.digest()}
	if err := os.MkdirAll(filepath.Join(disk.lies, unitKey(id, "a", 1), "in the way"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := disk.write(t.Context(), Part{ID: id, Units: []Unit{{0, content(0, 16)}, {1, content(1, 16)}}}, "a", known{}); err == nil || errors.Is(err, errNoRoom) {
		t.Fatalf("written: %v", err)
	}
	if after := s.files(s.own["a"]); !slices.Equal(before, after) {
		t.Errorf("what could not be written left %q", after)
	}
}

// A trainer that waited for it would stand still for as long as a bucket takes, also after the stop was called off.
func TestTheLastSnapshotOfAJobWaitsForTheOneBeforeBehindItsTrainersBack(t *testing.T) {
	s := newScene(t)
	a := s.open("a")
	share := machine.Share{Tier: machine.DiskTier, Units: []events.Range{{First: 0, End: 3}}}
	before := a.Take(s.task(8, share), export)
	before.Copy()
	last := s.task(9, share)
	last.Last = true
	taken := a.Take(last, export) // the one before is being written
	taken.Copy()
	taken.Write()
	before.Write()
	a.writing.Wait()
	if at := s.complete(a); at != 9 {
		t.Errorf("the newest complete snapshot is of step %d, expected the last one, 9", at)
	}
}

// ofTwoParts has a node's disk take two parts of a snapshot: one holds two of three units, the other one.
func ofTwoParts(units int64) func(*Settings) {
	return func(settings *Settings) { settings.MaxBytes = 2*(1000*units+500) + 500*units }
}

// pipelineOfFullDisks is a, which holds units 0-1, and b, which holds unit 2, with room for two parts each. Step 8 is complete.
func pipelineOfFullDisks(t *testing.T) (s *scene, a, b *Snapshots) {
	s = newScene(t)
	a, b = s.open("a", ofTwoParts(2)), s.open("b", ofTwoParts(1))
	s.captures(a, machine.DiskTier, 8, 0, 2)
	s.captures(b, machine.DiskTier, 8, 2, 3)
	s.tells(8)
	return s, a, b
}

// Each gives up one of two: a does not know yet that the snapshot of step 16 is complete, and b does.
func TestTwoFullDisksLeaveACompleteSnapshotBetweenThem(t *testing.T) {
	s, a, b := pipelineOfFullDisks(t)
	s.captures(a, machine.DiskTier, 16, 0, 2)
	s.captures(b, machine.DiskTier, 16, 2, 3)
	s.cannotWrite("a", 24)
	s.cannotWrite("b", 24)
	early := s.task(24, machine.Share{Tier: machine.DiskTier, Units: []events.Range{{First: 0, End: 2}}})
	s.tells(16)
	a.takes(early, export)
	a.writing.Wait()
	s.captures(b, machine.DiskTier, 24, 2, 3)
	if at := s.complete(a, b); at != 16 {
		t.Errorf("a reads %q, b reads %q: expected the snapshot of step 16, which is complete, to stay", s.lists(a), s.lists(b))
	}
}

// A rule that gives up nothing of which it is not known whether it is complete would have a stand still for ever.
func TestAFullDiskGoesOnBehindASnapshotThatAnotherNodeMissed(t *testing.T) {
	s, a, b := pipelineOfFullDisks(t)
	s.captures(a, machine.DiskTier, 16, 0, 2) // b is being started again
	s.captures(a, machine.DiskTier, 24, 0, 2)
	s.captures(b, machine.DiskTier, 24, 2, 3)
	if at := s.complete(a, b); at != 24 || !slices.Equal(s.asked, []uint64{16}) {
		t.Errorf("the newest complete snapshot is of step %d, and a asked for %d: expected 24 to be written in place of 16", at, s.asked)
	}
}

func TestAFullDiskKeepsWhatMayBeCompleteWhileNobodySaysWhetherItIs(t *testing.T) {
	s, a, _ := pipelineOfFullDisks(t)
	s.fate = machine.Undecided
	s.captures(a, machine.DiskTier, 16, 0, 2)
	s.captures(a, machine.DiskTier, 24, 0, 2)
	s.expectReadable(a, "16: 0-2", "8: 0-2")
}

// Agents logged it, and nobody else heard: doctor took it for a setting that was forgotten.
func TestANodeThatCannotWriteTellsWhatIsFoundToBeWrong(t *testing.T) {
	s := newScene(t)
	a := s.open("a")
	s.captures(a, machine.DiskTier, 8, 0, 3)
	s.cannotWrite("a", 16)
	s.captures(a, machine.DiskTier, 16, 0, 3)
	if want := []string{"a to disk at 16: other"}; !slices.Equal(s.unwritten, want) {
		t.Errorf("it tells %q: expected %q", s.unwritten, want)
	}
	for _, c := range []struct {
		err  error
		want string
	}{
		{fmt.Errorf("write unit-4: %w", syscall.ENOSPC), machine.FullFinding},
		{fmt.Errorf("%w for 9 bytes within 8", errNoRoom), machine.FullFinding},
		{fmt.Errorf("open unit-4: %w", syscall.EROFS), machine.ReadOnlyFinding},
		{fmt.Errorf("open unit-4: %w", syscall.EACCES), machine.RefusedFinding},
		{fmt.Errorf("put unit-4: %w", context.DeadlineExceeded), machine.SlowFinding},
		{errors.New("a bucket is not there"), machine.OtherFinding},
	} {
		if got := findingOf(c.err); got != c.want {
			t.Errorf("%v is %s: expected %s", c.err, got, c.want)
		}
	}
}

// A wall of words stood in status, with the path of a part in it twice.
func TestTheReasonOfAFullDiskIsTheFolderTheCauseAndWhatIsNeeded(t *testing.T) {
	s := newScene(t)
	s.own["a"] = room(t, "4k")
	a := s.open("a")
	said := make(chan string, 1)
	a.owner.Unwritten = func(_ string, _ retention.ID, _ []events.Range, _ string, err error) { said <- err.Error() }
	s.captures(a, machine.DiskTier, 8, 0, 3)
	want := s.own["a"] + ": no space left on device, and the part of this node needs "
	if reason := <-said; !strings.HasPrefix(reason, want) || !strings.HasSuffix(reason, " MiB") {
		t.Errorf("it tells %q, expected %q and how much", reason, want)
	}
}
