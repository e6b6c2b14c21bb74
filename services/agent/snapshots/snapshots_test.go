package snapshots

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/reknit/reknit/events"
	"github.com/reknit/reknit/services/agent/machine"
	"github.com/reknit/reknit/services/agent/retention"
)

// scene is nodes that hold three units of 1,000 bytes, and take snapshots to a bucket that all read and to folders of
// their own.
type scene struct {
	t         *testing.T
	shared    string
	own       map[string]string
	opened    map[string]*Snapshots // processes, by node
	plan      events.Plan
	memory    *Memory        // of all nodes, as of trainers of one agent; nil: each process has its own
	told      []retention.ID // snapshots that the cluster says are complete in each tier, the newest first
	fate      machine.Fate   // of what is not complete, where a node asks to withdraw its part
	asked     []uint64       // steps of such parts
	unwritten []string       // as nodes told, of their own parts
}

func newScene(t *testing.T) *scene {
	return &scene{
		t: t, shared: t.TempDir(), own: map[string]string{}, opened: map[string]*Snapshots{},
		plan: events.Plan{Generation: 1}, fate: machine.Withdrawn,
	}
}

// open starts a node's process; the folder is that of the process before.
func (s *scene) open(node string, alter ...func(*Settings)) *Snapshots {
	s.t.Helper()
	if s.own[node] == "" {
		s.own[node] = s.t.TempDir()
		s.plan.Nodes = append(s.plan.Nodes, events.Member{Node: node})
	}
	settings := Settings{
		Folder: s.own[node], DiskEvery: 1, Bucket: "file://" + s.shared + "?no_tmp_dir=true&metadata=skip", RemoteEvery: 1,
		Keep: 2, MaxBytes: 1 << 20,
	}
	for _, alter := range alter {
		alter(&settings)
	}
	job := events.Job{Digest: events.Digest([]byte("job")), Layers: make([]events.LayerProfile, 3)}
	owner := Owner{Cluster: "c", Node: node, Job: job, MemoryBytes: 1 << 20, Memory: s.memory}
	owner.Lend = func(ctx context.Context, to string, part Part) error {
		return s.opened[to].Keep(ctx, node, func() (Part, error) { return part, nil })
	}
	owner.Withdraw = func(_ context.Context, _ string, id retention.ID, _ []events.Range) machine.Fate {
		s.asked = append(s.asked, id.Step)
		if slices.Contains(s.told, id) {
			return machine.Complete
		}
		return s.fate
	}
	owner.Unwritten = func(tier string, id retention.ID, _ []events.Range, finding string, _ error) {
		s.unwritten = append(s.unwritten, fmt.Sprintf("%s to %s at %d: %s", node, tier, id.Step, finding))
	}
	opened, err := Open(s.t.Context(), settings, owner)
	if err != nil {
		s.t.Fatal(err)
	}
	s.opened[node] = opened
	s.t.Cleanup(opened.Close)
	return opened
}

// content is what a unit is at a step.
func content(unit int, step uint64) []byte {
	return bytes.Repeat(fmt.Appendf(nil, "%2d at %4d ", unit, step), 100)
}

func export(unit int, step uint64) ([]byte, error) { return content(unit, step), nil }

// takes has a node write what it trains.
func (s *Snapshots) takes(task machine.Capture, export func(int, uint64) ([]byte, error)) {
	taken := s.Take(task, export)
	taken.Copy()
	taken.Write()
}

// captures has a node write units to a tier, and waits until they are written.
func (s *scene) captures(node *Snapshots, tier string, step uint64, first, end int) {
	share := machine.Share{Tier: tier, Units: []events.Range{{First: first, End: end}}}
	node.takes(s.task(step, share), export)
	node.writing.Wait()
}

func (s *scene) task(step uint64, shares ...machine.Share) machine.Capture {
	plan := s.plan
	task := machine.Capture{Step: step, Plan: &plan, Digest: s.digest(), Logged: time.Unix(int64(plan.Generation), 0), Shares: shares,
		Complete: map[string][]retention.ID{}}
	for _, tier := range []string{machine.MemoryTier, machine.DiskTier, machine.RemoteTier} {
		task.Complete[tier] = slices.Clone(s.told)
	}
	return task
}

// tells has the cluster say that a snapshot is complete.
func (s *scene) tells(step uint64) {
	s.told = append([]retention.ID{{Step: step, Plan: s.digest()}}, s.told...)
}

// digest is that of the plan in force, which its generation tells.
func (s *scene) digest() string { return events.Digest(fmt.Append(nil, s.plan.Generation)) }

// goesBack has a plan go on from an older step.
func (s *scene) goesBack(step uint64) {
	s.plan = events.Plan{Generation: s.plan.Generation + 1, ResumeStep: step, Nodes: s.plan.Nodes}
}

var planDigest = events.Digest([]byte("1"))

// lists tells what a node can read, as "step: first-end".
func (s *scene) lists(node *Snapshots) []string {
	var told []string
	for _, snapshot := range node.List(s.t.Context(), nil) {
		text := fmt.Sprintf("%d:", snapshot.Step)
		for _, units := range snapshot.Units {
			text += fmt.Sprintf(" %d-%d", units.First, units.End)
		}
		told = append(told, text)
	}
	return told
}

func (s *scene) expectReadable(node *Snapshots, want ...string) {
	s.t.Helper()
	if got := s.lists(node); !slices.Equal(got, want) {
		s.t.Errorf("it can read %q: expected %q", got, want)
	}
}

// files are those below a folder.
func (s *scene) files(folder string) []string {
	var files []string
	err := filepath.WalkDir(folder, func(path string, entry os.DirEntry, err error) error {
		if err == nil && !entry.IsDir() {
			files = append(files, path)
		}
		return err
	})
	if err != nil {
		s.t.Fatal(err)
	}
	return files
}

func TestEveryNodeReadsWhatTheOthersWroteToTheBucket(t *testing.T) {
	s := newScene(t)
	a, b := s.open("a"), s.open("b")
	s.captures(a, machine.RemoteTier, 8, 0, 2)
	s.captures(b, machine.RemoteTier, 8, 2, 3)
	newcomer := s.open("c")
	s.expectReadable(newcomer, "8: 0-3")
	for unit := range 3 {
		if data, err := newcomer.Read(t.Context(), 8, planDigest, unit); err != nil || !bytes.Equal(data, content(unit, 8)) {
			t.Errorf("unit %d is not what was written: %v", unit, err)
		}
	}
}

func TestAFolderOutlivesItsNodesProcessAndNobodyElseReadsIt(t *testing.T) {
	s := newScene(t)
	a := s.open("a")
	s.captures(a, machine.DiskTier, 8, 0, 2)
	a.Close()
	s.expectReadable(s.open("a"), "8: 0-2")
	s.expectReadable(s.open("b"))
}

// inMemory has a node keep snapshots in memory only.
func inMemory(settings *Settings) { *settings = Settings{MemoryEvery: 1, Keep: 2, MaxBytes: 1 << 20} }

func TestANeighbourKeepsWhatANodeHadInMemory(t *testing.T) {
	s := newScene(t)
	a, b := s.open("a", inMemory), s.open("b", inMemory)
	share := machine.Share{Tier: machine.MemoryTier, Units: []events.Range{{First: 0, End: 2}}, To: "b"}
	for step := uint64(8); step <= 32; step += 8 {
		a.takes(s.task(step, share), export)
		a.writing.Wait()
		s.tells(step)
	}
	s.expectReadable(a, "32: 0-2", "24: 0-2", "16: 0-2")
	a.Close()
	s.expectReadable(b, "32: 0-2", "24: 0-2", "16: 0-2")
	if data, err := b.Read(t.Context(), 32, planDigest, 1); err != nil || !bytes.Equal(data, content(1, 32)) {
		t.Errorf("the neighbour does not have what a dead node held: %v", err)
	}
	s.expectReadable(s.open("a", inMemory))
}

func TestAPartWithoutItsManifestIsNoSnapshot(t *testing.T) {
	s := newScene(t)
	a := s.open("a")
	s.captures(a, machine.RemoteTier, 8, 0, 3)
	s.captures(a, machine.RemoteTier, 16, 0, 3)
	for _, file := range s.files(s.shared) {
		if strings.Contains(file, fmt.Sprintf("%020d", 16)) && strings.HasSuffix(file, manifestName) {
			os.Remove(file)
		}
	}
	s.expectReadable(a, "8: 0-3")
}

func TestAUnitThatIsNotWhatWasWrittenIsFoundAndNotNamedAgain(t *testing.T) {
	s := newScene(t)
	a := s.open("a")
	s.captures(a, machine.RemoteTier, 8, 0, 3)
	for _, file := range s.files(s.shared) {
		if strings.HasSuffix(file, "unit-1") {
			os.WriteFile(file, content(1, 7), 0o600)
		}
	}
	s.expectReadable(a, "8: 0-3")
	if _, err := a.Read(t.Context(), 8, planDigest, 1); err == nil || !strings.Contains(err.Error(), "expected sha256:") {
		t.Errorf("a unit of another step was read: %v", err)
	}
	s.expectReadable(a, "8: 0-1 2-3")
}

func TestWhatTheBucketLostIsReadFromTheFolder(t *testing.T) {
	s := newScene(t)
	a := s.open("a")
	s.captures(a, machine.RemoteTier, 8, 0, 3)
	s.captures(a, machine.DiskTier, 8, 0, 3)
	s.lists(a)
	os.RemoveAll(filepath.Join(s.own["a"], "c"))
	if data, err := a.Read(t.Context(), 8, planDigest, 1); err != nil || !bytes.Equal(data, content(1, 8)) {
		t.Errorf("with the folder gone, the bucket was not read: %v", err)
	}
}

func TestTheNewestCompleteSnapshotsAreKept(t *testing.T) {
	s := newScene(t)
	a, b := s.open("a"), s.open("b")
	for step := uint64(8); step <= 40; step += 8 {
		s.captures(a, machine.RemoteTier, step, 0, 2)
		s.captures(b, machine.RemoteTier, step, 2, 3)
		s.tells(step)
	}
	for step := uint64(48); step <= 56; step += 8 { // the write after a complete one removes what that made obsolete
		s.captures(a, machine.RemoteTier, step, 0, 2)
		s.captures(b, machine.RemoteTier, step, 2, 3)
		s.expectReadable(a, fmt.Sprintf("%d: 0-3", step), fmt.Sprintf("%d: 0-3", step-8), fmt.Sprintf("%d: 0-3", step-16))
		s.tells(step)
	}
	if files := len(s.files(s.shared)); files != 5+5+5+1 {
		t.Errorf("%d files are left: expected the units and manifests of three snapshots, and the mark of the plan", files)
	}
}

func TestWhatIsTrainedAgainIsKeptBesideWhatTheDeadHadTrainedBefore(t *testing.T) {
	s := newScene(t)
	a, dead := s.open("a", inMemory), s.open("dead", inMemory)
	share := machine.Share{Tier: machine.MemoryTier, Units: []events.Range{{First: 0, End: 3}}, To: "a"}
	for step := uint64(8); step <= 32; step += 8 {
		dead.takes(s.task(step, share), export)
		dead.writing.Wait()
		s.tells(step)
	}
	s.goesBack(16)
	s.captures(a, machine.MemoryTier, 20, 0, 3)
	s.tells(20)
	s.captures(a, machine.MemoryTier, 24, 0, 3)
	s.expectReadable(a, "24: 0-3", "20: 0-3", "16: 0-3") // the last is of the history that counts, too
}

func TestAHistoryThatBeginsAnewTakesNothingAwayUntilItHasASnapshotOfItsOwn(t *testing.T) {
	s := newScene(t)
	a, b := s.open("a"), s.open("b")
	s.captures(a, machine.RemoteTier, 16, 0, 3)
	s.goesBack(0)
	s.captures(a, machine.RemoteTier, 8, 0, 2)
	s.expectReadable(a, "16: 0-3", "8: 0-2")
	s.captures(b, machine.RemoteTier, 8, 2, 3)
	s.tells(8)
	s.captures(a, machine.RemoteTier, 9, 0, 2)
	s.expectReadable(a, "9: 0-2", "8: 0-3")
}

func TestASnapshotTellsWhereTrainingStoodInItsData(t *testing.T) {
	s := newScene(t)
	s.plan.Data.GlobalBatch, s.plan.Data.ConsumedSamples = 24, 100
	a := s.open("a", inMemory)
	b := s.open("b", inMemory)
	a.takes(s.task(8, machine.Share{Tier: machine.MemoryTier, Units: []events.Range{{First: 0, End: 3}}, To: "b"}), export)
	a.writing.Wait()
	for _, node := range []*Snapshots{a, b} {
		if list := node.List(t.Context(), nil); len(list) != 1 || list[0].ConsumedSamples != 100+8*24 {
			t.Errorf("%s can read %+v", node.owner.Node, list)
		}
	}
}

func TestWhatAKilledWriteLeftIsRemovedWithItsPart(t *testing.T) {
	s := newScene(t)
	a := s.open("a")
	s.captures(a, machine.DiskTier, 8, 0, 3)
	manifest := s.files(s.own["a"])[0]
	left := filepath.Join(filepath.Dir(manifest), "fileblob123")
	if err := os.WriteFile(left, content(0, 8), 0o600); err != nil {
		t.Fatal(err)
	}
	for step := uint64(16); step <= 24; step += 8 {
		s.captures(a, machine.DiskTier, step, 0, 3)
		s.tells(step)
	}
	s.captures(a, machine.DiskTier, 32, 0, 3)
	if _, err := os.Stat(left); !os.IsNotExist(err) {
		t.Errorf("half a unit of a snapshot that was removed is left: %v", err)
	}
	s.expectReadable(a, "32: 0-3", "24: 0-3", "16: 0-3")
}

func TestTheFirstNodeRemovesWhatTheDeadWrote(t *testing.T) {
	s := newScene(t)
	a, dead := s.open("a"), s.open("dead")
	s.captures(a, machine.RemoteTier, 8, 0, 2)
	s.captures(dead, machine.RemoteTier, 8, 2, 3)
	s.plan.Nodes = s.plan.Nodes[:1]
	for step := uint64(16); step <= 32; step += 8 {
		s.captures(a, machine.RemoteTier, step, 0, 3)
		s.tells(step)
	}
	s.expectReadable(a, "32: 0-3", "24: 0-3", "16: 0-3")
}

func TestANodeNeverKeepsMoreBytesThanItMay(t *testing.T) {
	s := newScene(t)
	a := s.open("a", func(settings *Settings) { settings.MaxBytes = 5000 })
	for step := uint64(8); step <= 40; step += 8 {
		s.captures(a, machine.DiskTier, step, 0, 3)
	}
	s.expectReadable(a, "8: 0-3")
	b := s.open("b", func(settings *Settings) { settings.MaxBytes = 8500 })
	for step := uint64(8); step <= 40; step += 8 {
		s.captures(b, machine.DiskTier, step, 0, 3)
	}
	s.expectReadable(b, "40: 0-3", "32: 0-3")
}

func TestASnapshotThatIsDueWhileOneIsWrittenIsSkipped(t *testing.T) {
	s := newScene(t)
	a := s.open("a")
	writing := a.idle(machine.RemoteTier, false)
	share := machine.Share{Tier: machine.RemoteTier, Units: []events.Range{{First: 0, End: 3}}}
	a.takes(s.task(8, share), func(int, uint64) ([]byte, error) {
		t.Error("a unit was copied for a snapshot that is skipped")
		return nil, nil
	})
	<-writing.busy
	s.captures(a, machine.RemoteTier, 16, 0, 3)
	s.expectReadable(a, "16: 0-3")
}

func TestWhatTrainingChangesAfterTheCaptureIsNotInTheSnapshot(t *testing.T) {
	s := newScene(t)
	a := s.open("a")
	memory := content(0, 8)
	share := machine.Share{Tier: machine.DiskTier, Units: []events.Range{{First: 0, End: 1}}}
	a.takes(s.task(8, share), func(int, uint64) ([]byte, error) { return memory, nil })
	clear(memory)
	a.writing.Wait()
	s.lists(a)
	if data, err := a.Read(t.Context(), 8, planDigest, 0); err != nil || !bytes.Equal(data, content(0, 8)) {
		t.Errorf("the snapshot is of the memory as it was later: %v", err)
	}
}

func TestAfterASnapshotThatATrainerCouldNotGiveTheNextOneIsWritten(t *testing.T) {
	s := newScene(t)
	a := s.open("a")
	share := machine.Share{Tier: machine.DiskTier, Units: []events.Range{{First: 0, End: 3}}}
	a.takes(s.task(8, share), func(int, uint64) ([]byte, error) { return nil, errors.New("the device is gone") })
	s.captures(a, machine.DiskTier, 16, 0, 3)
	s.expectReadable(a, "16: 0-3")
}
