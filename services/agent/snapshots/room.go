package snapshots

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"syscall"
	"time"

	"github.com/reknit/reknit/services/agent/machine"
	"github.com/reknit/reknit/services/agent/retention"
)

// errNoRoom says that a part does not fit beside the newest one.
var errNoRoom = errors.New("no room")

// noRoomFor is an error of a store that is full, and how many bytes the part has that was to be written.
type noRoomFor struct {
	bytes int64
	error
}

func (n noRoomFor) Unwrap() error { return n.error }

// removeTime is how long what could not be written may take to be removed. The next write removes the rest.
const removeTime = 10 * time.Second

// write writes a node's part of a snapshot, within the bound on its bytes. Parts that may be given up go, the oldest first, if the store
// has no room, until it has. A part that could not be written is removed.
func (t *tier) write(ctx context.Context, part Part, node string, known known) error {
	t.writes.Lock()
	defer t.writes.Unlock()
	if err := t.makeRoom(ctx, part, node, &known); err != nil {
		return err
	}
	for {
		err := t.put(ctx, part, node, known.history)
		if err == nil {
			return nil
		}
		removing, cancel := context.WithTimeout(context.WithoutCancel(ctx), removeTime)
		err = errors.Join(err, t.remove(removing, []retention.Part{{ID: part.ID, Node: node}}))
		cancel()
		if !full(err) {
			return err
		}
		lies, listing := t.list(ctx)
		own, complete := t.own(lies, node, known)
		spare := retention.Spare(own, complete, known.history)
		if listing != nil || len(spare) == 0 {
			return errors.Join(fmt.Errorf("%w: nothing is left to give up%s: %w", errNoRoom, beside(complete), err), listing)
		}
		if _, err := t.giveUp(ctx, spare[0], complete, &known); err != nil {
			return err
		}
	}
}

// beside names what is kept whatever comes, if there is one.
func beside(complete []retention.ID) string {
	if len(complete) == 0 {
		return ""
	}
	return " beside the newest complete snapshot"
}

// full reports whether a store has no room: its disk is full, or its quota is used up.
func full(err error) bool { return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) }

// makeRoom removes what nobody needs any more, and what makes room for the part.
func (t *tier) makeRoom(ctx context.Context, part Part, node string, known *known) error {
	lies, err := t.list(ctx)
	if err != nil {
		return err
	}
	next := retention.Part{ID: part.ID, Node: node, Bytes: part.bytes()}
	isNext := func(part retention.Part) bool { return part.ID == next.ID && part.Node == node } // it is overwritten
	for {
		own, complete := t.own(lies, node, *known)
		retire, ok := retention.Room(slices.DeleteFunc(own, isNext), next, complete, t.bound, known.history)
		if !ok {
			return fmt.Errorf("%w for %d bytes within REKNIT_SNAPSHOT_BYTES, %d%s", errNoRoom, next.Bytes, t.bound.Bytes, beside(complete))
		}
		if len(retire) == 0 {
			return nil
		}
		gone, err := t.giveUp(ctx, retire[0], complete, known)
		if err != nil {
			return err
		}
		lies.parts = slices.DeleteFunc(lies.parts, func(part retention.Part) bool {
			return gone && part.ID == retire[0].ID && part.Node == retire[0].Node
		})
	}
}

// giveUp removes a part to make room, and reports whether it is gone. One that may be of the newest complete snapshot is removed once the
// cluster counts it no more. It stays where the snapshot turns out to be complete, as is known from then on.
func (t *tier) giveUp(ctx context.Context, part retention.Part, complete []retention.ID, known *known) (gone bool, err error) {
	if retention.IsOpen(part, complete, known.history) {
		switch fate := t.withdraw(ctx, part); {
		case fate == machine.Complete && !slices.Contains(known.complete, part.ID):
			known.complete = append([]retention.ID{part.ID}, known.complete...)
			return false, nil
		case fate == machine.Undecided:
			return false, fmt.Errorf("%w: the snapshot of step %d may be complete, and nobody says in time that this part of it counts no more",
				errNoRoom, part.Step)
		}
	}
	return true, t.remove(ctx, []retention.Part{part})
}

// own returns the parts that are this node's to retire, and which snapshots are complete. Only those of the node's own plan are its, and
// the bound is for these, if parts are written under what looks like a later plan: the hub's clock may have been set back.
func (t *tier) own(lies lying, node string, known known) (own []retention.Part, complete []retention.ID) {
	isOutdone := known.history.IsOutdone(lies.begun)
	others := func(part retention.Part) bool {
		return t.isOthers(part.Node, node, known) || isOutdone && part.Plan != known.history.Plan
	}
	return slices.DeleteFunc(slices.Clone(lies.parts), others), t.complete(lies, known)
}

// complete returns the snapshots that the cluster says are complete and that are there, the one that was told last first: in a tier that
// all read with all units.
func (t *tier) complete(lies lying, known known) []retention.ID {
	told := retention.Told(lies.parts, known.complete)
	if t.units == 0 {
		return told
	}
	whole := retention.Complete(lies.parts, t.units)
	return slices.DeleteFunc(told, func(id retention.ID) bool { return !slices.Contains(whole, id) })
}
