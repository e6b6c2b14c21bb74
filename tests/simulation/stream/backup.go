package stream

import (
	"maps"
	"slices"
)

// Backup is what a server had stored at a time.
type Backup struct {
	facts, plans, snapshots *Stream
}

// BackUp returns a copy of what is stored. O(n) of the messages.
func (s *Server) BackUp() *Backup {
	return &Backup{facts: s.Events.copied(), plans: s.Plans.copied(), snapshots: s.Snapshots.stream.copied()}
}

// Restore has the server come back with what it had stored then. Consumers made since are gone, and what those before delivered or had
// acknowledged since is forgotten.
func (s *Server) Restore(b *Backup) {
	s.Events.become(b.facts)
	s.Plans.become(b.plans)
	s.Snapshots.stream.become(b.snapshots)
}

func (s *Stream) become(backup *Stream) {
	for _, consumer := range s.durables {
		consumer.dropped = true
	}
	objects := s.Payloads
	*s = *backup.copied()
	for _, consumer := range s.durables {
		consumer.stream = s
	}
	if objects != nil {
		*objects, s.Payloads = *s.Payloads, objects
	}
}

// copied returns a stream that shares with this one only what never changes.
func (s *Stream) copied() *Stream {
	c := *s
	c.messages, c.window, c.inProcess = slices.Clone(s.messages), slices.Clone(s.window), slices.Clone(s.inProcess)
	c.last, c.replaced, c.known = maps.Clone(s.last), maps.Clone(s.replaced), maps.Clone(s.known)
	c.families, c.on = map[family][]uint64{}, map[string][]uint64{}
	for of, sequences := range s.families {
		c.families[of] = slices.Clone(sequences)
	}
	for subject, sequences := range s.on {
		c.on[subject] = slices.Clone(sequences)
	}
	c.durables = map[string]*Consumer{}
	for name, consumer := range s.durables {
		kept := *consumer
		kept.waiting = slices.Clone(consumer.waiting)
		c.durables[name] = &kept
	}
	if s.Payloads != nil {
		objects := *s.Payloads
		objects.objects, objects.aging = maps.Clone(objects.objects), slices.Clone(objects.aging)
		c.Payloads = &objects
	}
	return &c
}
