package snapshots

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"gocloud.dev/blob"
	"gocloud.dev/blob/driver"
	"gocloud.dev/gcerrors"

	"github.com/reknit/reknit/events"
	"github.com/reknit/reknit/services/agent/machine"
	"github.com/reknit/reknit/services/agent/retention"
)

// It is one process that was frozen and given up: its successor has the folder and the bucket, and trains under a plan of which the one
// that thaws knows nothing. Seeds 774 (disk) and 476 (bucket) of the simulation.
func TestAProcessThatThawsRemovesNothingThatItsSuccessorWrote(t *testing.T) {
	for _, tier := range []string{machine.DiskTier, machine.RemoteTier} {
		t.Run(tier, func(t *testing.T) {
			s := newScene(t)
			first := s.open("a")
			s.captures(first, tier, 8, 0, 3)
			s.captures(first, tier, 16, 0, 3)
			s.tells(8)
			s.tells(16)
			frozen, told := s.plan, s.told
			s.goesBack(16)
			successor := s.open("a")
			s.captures(successor, tier, 24, 0, 3)
			s.tells(24)

			later := s.plan
			s.plan, s.told = frozen, told
			s.captures(first, tier, 20, 0, 3) // it thaws: to it step 24 is of a history that was left
			s.plan = later
			if list := s.lists(successor); !slices.Contains(list, "24: 0-3") {
				t.Errorf("after the first process wrote on, its successor reads %q: expected step 24, which is complete, to stay", list)
			}
			s.tells(24)
			s.captures(successor, tier, 32, 0, 3)
			if list := s.lists(successor); slices.Contains(list, "20: 0-3") {
				t.Errorf("the successor keeps what the first wrote of a history that was left: %q", list)
			}
		})
	}
}

func TestOfMarksOfPlansOneStays(t *testing.T) {
	s := newScene(t)
	a := s.open("a")
	for step := uint64(8); step <= 80; step += 8 {
		s.goesBack(step)
		s.captures(a, machine.DiskTier, step+1, 0, 3)
		s.tells(step + 1)
	}
	marks := slices.DeleteFunc(s.files(s.own["a"]), func(file string) bool { return !strings.Contains(file, "/"+beganWith) })
	if len(marks) != 1 {
		t.Errorf("after ten plans these marks lie there: %q; expected the newest alone", marks)
	}
}

// The hub's clock was set back an hour, or another server leads whose clock is behind.
func TestSnapshotsGoOnWhereTheLogsClockWasSetBack(t *testing.T) {
	for name, parent := range map[string]string{
		"since the plan before": planDigest, "since a plan of which nothing was written": events.Digest([]byte("between")),
	} {
		t.Run(name, func(t *testing.T) {
			s := newScene(t)
			a := s.open("a", func(settings *Settings) { settings.MaxBytes = 10 * 3000 })
			s.captures(a, machine.DiskTier, 8, 0, 3)
			s.captures(a, machine.DiskTier, 16, 0, 3)
			s.tells(8)
			s.tells(16)
			s.goesBack(16)
			s.plan.Parent = parent
			for step := uint64(24); step <= 24*8; step += 8 {
				task := s.task(step, machine.Share{Tier: machine.DiskTier, Units: []events.Range{{First: 0, End: 3}}})
				task.Logged = time.Unix(0, 0)
				a.takes(task, export)
				a.writing.Wait()
				s.tells(step)
				if list := s.lists(a); !slices.Contains(list, fmt.Sprintf("%d: 0-3", step)) {
					t.Fatalf("step %d was not written: %q", step, list)
				}
			}
			if list := s.lists(a); parent == planDigest && len(list) > 3 {
				t.Errorf("nothing is removed: %q", list)
			}
		})
	}
}

// vanishing is a folder in which another process removes a file while it is listed, so many times.
type vanishing struct {
	driver.Bucket
	times int
}

func (v *vanishing) ListPaged(context.Context, *driver.ListOptions) (*driver.ListPage, error) {
	if v.times--; v.times >= 0 {
		return nil, os.ErrNotExist
	}
	return &driver.ListPage{Objects: []*driver.ListObject{{Key: unitKey(retention.ID{Step: 8, Plan: planDigest}, "a", 0), Size: 1}}}, nil
}

func (v *vanishing) ErrorCode(error) gcerrors.ErrorCode { return gcerrors.NotFound }
func (v *vanishing) Close() error                       { return nil }

func TestAFileThatAnotherRemovesWhileAFolderIsListedIsNoFault(t *testing.T) {
	for times, fails := range map[int]bool{0: false, 1: false, mostListings - 1: false, 1000: true} {
		bucket := blob.NewBucket(&vanishing{times: times})
		lies, err := (&tier{bucket: bucket}).list(t.Context())
		if (err != nil) != fails || !fails && len(lies.parts) != 1 {
			t.Errorf("%d times: %v, %v", times, lies, err)
		}
		_ = bucket.Close()
	}
}
