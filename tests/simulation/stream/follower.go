package stream

// Follower reads a stream in order, each message once, without acknowledgement: an ordered consumer.
type Follower struct {
	stream  *Stream
	filter  filter
	from    uint64
	onlyNew bool // it began behind the last message, and has read none
}

// Follow returns a follower that begins behind sequence.
func (s *Stream) Follow(subjects []string, sequence uint64) *Follower {
	return &Follower{stream: s, filter: newFilter(subjects...), from: sequence + 1}
}

// FollowNew returns a follower that begins behind the last message.
func (s *Stream) FollowNew(subjects []string) *Follower {
	follower := s.Follow(subjects, s.end()-1)
	follower.onlyNew = true
	return follower
}

// Next returns the next message, nil where there is none or nobody answers.
func (f *Follower) Next() *Message {
	if f.stream.server.state != Up {
		return nil
	}
	stored := f.stream.next(f.from, f.filter)
	if stored == nil {
		f.from = max(f.from, f.stream.end())
		return nil
	}
	f.from, f.onlyNew = stored.Sequence+1, false
	return stored
}

// Begin has the follower read from the beginning of what there is now.
func (f *Follower) Begin() { f.from, f.onlyNew = 1, false }

// End has the follower read what comes from now on, whatever it has read.
func (f *Follower) End() { f.from, f.onlyNew = f.stream.end(), false }

// Of reports whether the follower reads a stream.
func (f *Follower) Of(s *Stream) bool { return f.stream == s }

// Read returns the sequence up to which the follower has come.
func (f *Follower) Read() uint64 { return f.from - 1 }

// Interrupt makes the server forget the follower, as a restart does, and the client begin anew: behind what it read
// last, or, where it wanted new messages and has read none, behind the last one there is now.
func (f *Follower) Interrupt() {
	if f.onlyNew {
		f.from = f.stream.end()
	}
}
