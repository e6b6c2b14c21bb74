package agent

import (
	"context"
	"time"

	"github.com/reknit/reknit/events"
	"github.com/reknit/reknit/services/agent/machine"
	"github.com/reknit/reknit/services/agent/retention"
)

// capture takes a snapshot of the state: at once, or while training goes on, where the state stands still meanwhile.
func (s *Session) capture(state State, task machine.Capture) {
	taken := s.snapshots.Take(task, state.Export)
	still, able := state.(Stiller)
	if !able {
		taken.Copy()
		taken.Write()
		return
	}
	release, copied := still.Still(), make(chan struct{})
	s.mutex.Lock()
	s.loop.copied = copied
	s.mutex.Unlock()
	go func() {
		defer close(copied)
		taken.Copy()
		if err := release(); err != nil {
			taken.Drop(err)
			return
		}
		taken.Write()
	}()
}

// untilCopied waits until nothing of the state is copied any more: as long as that takes in memory.
func (s *Session) untilCopied() {
	s.mutex.Lock()
	copied := s.loop.copied
	s.mutex.Unlock()
	<-copied
}

// written tells that this node's part of a snapshot is written.
func (s *Session) written(tier string, id retention.ID, units []events.Range) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	s.fact(string(events.SnapshotWritten)+" "+tier, s.machine.Written(time.Now(), tier, id, units))
	if resumed := s.machine.Resumes(time.Now(), tier, id, units); resumed.Kind != "" {
		s.fact(string(events.SnapshotFailed)+" "+tier, resumed)
	}
}

// unwritten tells that this node's part of a snapshot could not be written, and why.
func (s *Session) unwritten(tier string, id retention.ID, units []events.Range, finding string, err error) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	if failed := s.machine.Unwritten(time.Now(), tier, id, units, finding, err.Error()); failed.Kind != "" {
		s.fact(string(events.SnapshotFailed)+" "+tier, failed)
	}
}

// withdrawTime is for the cluster to answer who wants to remove a part.
var withdrawTime = 10 * time.Second

const withdrawPause = 20 * time.Millisecond // before it is looked whether it has

// withdraw asks that this node's part of a snapshot count no more, and waits for what comes of it. It is said behind what was said
// before of parts in that tier, and nothing is said of it twice.
func (s *Session) withdraw(ctx context.Context, tier string, id retention.ID, units []events.Range) machine.Fate {
	ctx, cancel := context.WithTimeout(ctx, withdrawTime)
	defer cancel()
	fate := s.fateOf(tier, id)
	if fate == machine.Undecided {
		s.mutex.Lock()
		s.fact(string(events.SnapshotWritten)+" "+tier, s.machine.Withdraws(time.Now(), tier, id, units))
		s.mutex.Unlock()
	}
	for fate == machine.Undecided && pause(ctx, withdrawPause) {
		fate = s.fateOf(tier, id)
	}
	return fate
}

func (s *Session) fateOf(tier string, id retention.ID) machine.Fate {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	return s.machine.Fate(tier, id)
}

// recallComplete tells the machine which snapshot of each tier was complete last, before it began to listen.
func (s *Session) recallComplete(ctx context.Context) error {
	for _, tier := range s.snapshots.Tiers() {
		subject := events.EventSubject(s.config.Cluster, events.SnapshotCompleted, tier.Name)
		complete, found, err := s.bus.LastEvent(ctx, events.EventStream, subject)
		if err != nil {
			return err
		}
		if found {
			s.hear(complete)
		}
	}
	return nil
}
