package agent

import "github.com/reknit/reknit/services/agent/machine"

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
