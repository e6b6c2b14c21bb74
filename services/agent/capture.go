package agent

import (
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
}
