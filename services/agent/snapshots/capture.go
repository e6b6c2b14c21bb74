package snapshots

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"math"
	"slices"
	"syscall"
	"time"

	"gocloud.dev/gcerrors"

	"github.com/reknit/reknit/events"
	"github.com/reknit/reknit/services/agent/machine"
	"github.com/reknit/reknit/services/agent/retention"
)

// Taken is units that are to be written, as a trainer exported them: what it trains on, for as long as it stands still.
type Taken struct {
	snapshots *Snapshots
	task      machine.Capture
	shares    []takenShare
}

type takenShare struct {
	tier  *tier // its token is taken, but for the last snapshot of a job: whoever writes that waits for it
	to    string
	units []Unit
}

// Take takes the units of each share. A tier that is still writing the snapshot before is left out: nothing queues. The last one of a job
// waits for that behind the caller's back. The units taken are to be copied, and then written or dropped.
func (s *Snapshots) Take(task machine.Capture, export func(unit int, step uint64) ([]byte, error)) *Taken {
	s.mutex.Lock()
	s.newest, s.complete, s.plan = historyOf(task), task.Complete, task.Plan
	s.mutex.Unlock()
	s.keepMemory()
	taken := &Taken{snapshots: s, task: task}
	for _, share := range task.Shares {
		t := s.idle(share.Tier, task.Last)
		if t == nil {
			slog.Warn("snapshot skipped: the one before is still being written",
				"node", s.owner.Node, "tier", share.Tier, "step", task.Step)
			continue
		}
		units, err := exported(share.Units, task.Step, export)
		if err != nil {
			taken.release(t)
			s.fail("snapshot not captured", t, task, share.Units, err)
			continue
		}
		taken.shares = append(taken.shares, takenShare{t, share.To, units})
	}
	return taken
}

// historyOf is the one that counts where a plan is trained.
func historyOf(task machine.Capture) retention.History {
	return retention.History{Resume: task.Plan.ResumeStep, Plan: task.Digest, Parent: task.Plan.Parent, Logged: task.Logged}
}

// keepMemory keeps what is in memory for the node's next session: it trains, so that its job was not refused.
func (s *Snapshots) keepMemory() {
	for _, t := range s.tiers {
		if t.name == machine.MemoryTier {
			s.memory.keep(kept{node: s.owner.Node, of: s.prefix(), bucket: t.bucket, bytes: t.bound.Bytes})
		}
	}
}

func exported(ranges []events.Range, step uint64, export func(int, uint64) ([]byte, error)) ([]Unit, error) {
	var units []Unit
	for unit := range events.Each(ranges) {
		data, err := export(unit, step)
		if err != nil {
			return nil, err
		}
		units = append(units, Unit{unit, data})
	}
	return units, nil
}

// Copy copies the units, which stand still until it returns. Tiers share the copies.
func (t *Taken) Copy() {
	copies := map[int][]byte{}
	for _, share := range t.shares {
		for i, unit := range share.units {
			if copies[unit.Unit] == nil {
				copies[unit.Unit] = slices.Clone(unit.Data)
			}
			share.units[i].Data = copies[unit.Unit]
		}
	}
}

// Write writes the copies behind the caller's back.
func (t *Taken) Write() {
	for _, share := range t.shares {
		t.snapshots.writing.Go(func() {
			if t.task.Last && !t.snapshots.await(share.tier) {
				return
			}
			defer func() { <-share.tier.busy }()
			if share.tier.last != (retention.ID{Step: t.task.Step, Plan: t.task.Digest}) { // it may have fallen due anyway
				t.snapshots.write(share.tier, t.task, share.to, share.units)
			}
		})
	}
}

// await takes the token of a tier once what it writes is written; false where the session ends first.
func (s *Snapshots) await(t *tier) bool {
	select {
	case t.busy <- struct{}{}:
		return true
	case <-s.context.Done():
		return false
	}
}

// release gives back the token of a tier, if it was taken.
func (t *Taken) release(tier *tier) {
	if !t.task.Last {
		<-tier.busy
	}
}

// Drop has nothing written, for a reason.
func (t *Taken) Drop(reason error) {
	for _, share := range t.shares {
		t.release(share.tier)
		t.snapshots.fail("snapshot not captured", share.tier, t.task, rangesOf(unitsOf(share.units)), reason)
	}
}

// idle takes the token of a tier; nil where it is taken, unless it is to be waited for later.
func (s *Snapshots) idle(name string, later bool) *tier {
	for _, t := range s.tiers {
		if t.name != name {
			continue
		}
		if later {
			return t
		}
		select {
		case t.busy <- struct{}{}:
			return t
		default:
		}
	}
	return nil
}

// writeTime is how long a part may be written: then it is given up, and the next one is due.
const writeTime = time.Hour

// write writes a part, here and to a neighbour, and removes what it makes obsolete: where all nodes write, parts of
// this node and, if it is the plan's first, parts of those whom the plan does not name.
func (s *Snapshots) write(t *tier, task machine.Capture, to string, units []Unit) {
	ctx, cancel := context.WithTimeout(s.context, writeTime)
	defer cancel()
	began := time.Now()
	part := Part{retention.ID{Step: task.Step, Plan: task.Digest}, task.Plan.SamplesAt(task.Step), units}
	err := t.write(ctx, part, s.owner.Node, s.knows(t.name))
	if err == nil && to != "" {
		err = s.owner.Lend(ctx, to, part)
	}
	if full(err) {
		err = noRoomFor{part.bytes(), err}
	}
	if err != nil {
		s.fail("snapshot not written", t, task, rangesOf(unitsOf(units)), err)
		return
	}
	slog.Info("snapshot written", "node", s.owner.Node, "tier", t.name, "step", task.Step, "units", len(units),
		"seconds", time.Since(began).Seconds())
	t.last = part.ID
	if s.owner.Written != nil {
		s.owner.Written(t.name, part.ID, rangesOf(unitsOf(units)))
	}
	sweeps, known := task.Plan.Nodes[0].Node == s.owner.Node, s.knows(t.name)
	err = t.retire(ctx, known, func(node string) bool {
		_, lives := task.Plan.Member(node)
		return !t.isOthers(node, s.owner.Node, known) || sweeps && !lives
	})
	if err != nil {
		s.warn("obsolete snapshots not removed", t, task.Step, err)
	}
}

func unitsOf(units []Unit) (numbers []int) {
	for _, unit := range units {
		numbers = append(numbers, unit.Unit)
	}
	return numbers
}

// knows returns what the log told of a tier's snapshots, as of the last capture.
func (s *Snapshots) knows(tier string) known {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	return known{s.newest, s.complete[tier], s.plan}
}

// knowsBeside returns what is known when a neighbour writes under a plan. Under one that this node has not captured
// anything of, nothing is known to be left.
func (s *Snapshots) knowsBeside(plan string) known {
	known := s.knows(machine.MemoryTier)
	if known.history.Plan != plan {
		known.history = retention.History{Resume: math.MaxUint64}
	}
	return known
}

// Keep keeps a neighbour's part of a snapshot in memory, once it is this one's turn to be fetched.
func (s *Snapshots) Keep(ctx context.Context, node string, fetch func() (Part, error)) error {
	for _, t := range s.tiers {
		if t.name != machine.MemoryTier {
			continue
		}
		select {
		case s.keeping <- struct{}{}:
			defer func() { <-s.keeping }()
		case <-ctx.Done():
			return ctx.Err()
		}
		part, err := fetch()
		known := s.knowsBeside(part.Plan)
		if err == nil {
			err = t.write(ctx, part, node, known)
		}
		if err == nil {
			err = t.retire(ctx, known, func(string) bool { return true })
		}
		return err
	}
	return errors.New("snapshots in memory are off")
}

// fail tells that a part was not written.
func (s *Snapshots) fail(what string, t *tier, task machine.Capture, units []events.Range, err error) {
	s.unwritten(what, t, retention.ID{Step: task.Step, Plan: task.Digest}, units, err)
}

func (s *Snapshots) unwritten(what string, t *tier, id retention.ID, units []events.Range, err error) {
	s.warn(what, t, id.Step, err)
	if s.context.Err() == nil && s.owner.Unwritten != nil {
		s.owner.Unwritten(t.name, id, units, findingOf(err), t.inShort(err))
	}
}

// inShort tells by the folder and the cause alone that a disk is full, or may not be written to, and of a full one how much is needed. The
// path of a part is long, stands in the error twice, and is in the agent's log.
func (t *tier) inShort(err error) error {
	var cause syscall.Errno
	if t.folder == "" || !errors.As(err, &cause) {
		return err
	}
	if tight, is := errors.AsType[noRoomFor](err); is {
		return fmt.Errorf("%s: %w, and the part of this node needs %.3g MiB", t.folder, cause, float64(tight.bytes)/(1<<20))
	}
	if findingOf(err) != machine.OtherFinding {
		return fmt.Errorf("%s: %w", t.folder, cause)
	}
	return fmt.Errorf("%s: %w: %w", t.folder, cause, err)
}

// findingOf tells what keeps a part from being written.
func findingOf(err error) string {
	switch {
	case errors.Is(err, errNoRoom) || full(err):
		return machine.FullFinding
	case errors.Is(err, syscall.EROFS):
		return machine.ReadOnlyFinding
	case errors.Is(err, fs.ErrPermission) || gcerrors.Code(err) == gcerrors.PermissionDenied:
		return machine.RefusedFinding
	case errors.Is(err, context.DeadlineExceeded):
		return machine.SlowFinding
	}
	return machine.OtherFinding
}

func (s *Snapshots) warn(what string, t *tier, step uint64, err error) {
	if s.context.Err() == nil {
		slog.Warn(what, "node", s.owner.Node, "tier", t.name, "step", step, "error", err)
	}
}
