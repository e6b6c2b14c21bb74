package stream

import (
	"slices"
	"time"
)

// keepNewest drops the oldest message on the subject of a new one where there are too many.
func (s *Stream) keepNewest(stored *Message) {
	if s.config.Newest == 0 {
		return
	}
	s.on[stored.Subject] = append(s.on[stored.Subject], stored.Sequence)
	if on := s.on[stored.Subject]; len(on) > s.config.Newest {
		s.remove(s.at(on[0]))
	}
}

// Purge drops all but the newest messages, and returns what it dropped.
func (s *Stream) Purge(newest int) (dropped []*Message) {
	for ; s.first+uint64(newest) < s.end(); s.first++ {
		if oldest := s.at(s.first); oldest != nil {
			s.remove(oldest)
			dropped = append(dropped, oldest)
		}
	}
	return dropped
}

// Thin lets go of most that messages carry which were stored before a time: days of a thousand nodes would not find room.
func (s *Stream) Thin(before time.Time, thin func(data any) any) {
	for s.thick = max(s.thick, s.first); s.thick < s.end(); s.thick++ {
		stored := s.at(s.thick)
		if stored != nil && !stored.Logged.Before(before) {
			return
		}
		if stored != nil {
			stored.Data = thin(stored.Data)
		}
	}
}

// Trim drops what is stored up to a sequence, but for what is kept, and returns it.
func (s *Stream) Trim(upTo uint64, isKept func(*Message) bool) (dropped []*Message) {
	for sequence := s.first; sequence <= upTo; sequence++ {
		if stored := s.at(sequence); stored != nil && !isKept(stored) {
			s.remove(stored)
			dropped = append(dropped, stored)
		}
	}
	return dropped
}

func (s *Stream) remove(stored *Message) {
	s.messages[stored.Sequence-s.gone-1] = nil
	s.bytes -= stored.Bytes
	switch on := s.on[stored.Subject]; { // what goes is the oldest on its subject
	case len(on) > 1:
		s.on[stored.Subject] = on[1:]
	case len(on) == 1:
		delete(s.on, stored.Subject)
	}
	if s.last[stored.Subject] == stored {
		delete(s.last, stored.Subject)
	}
}

// expire drops messages for their age, and forgets ids that are older than the window of repeats. The server does so
// at its own times, the model when something is published.
func (s *Stream) expire(now time.Time) {
	for ; s.first < s.end(); s.first++ {
		oldest := s.at(s.first)
		if oldest != nil && (s.config.MaxAge == 0 || now.Sub(oldest.Logged) < s.config.MaxAge) {
			break
		}
		if oldest != nil {
			s.remove(oldest)
		}
	}
	if gone := s.first - 1 - s.gone; gone > uint64(len(s.messages))/2 {
		s.messages, s.gone = slices.Clone(s.messages[gone:]), s.gone+gone
	}
	old := 0
	for old < len(s.window) && now.Sub(s.window[old].Logged) >= s.config.Dedupe {
		delete(s.known, s.window[old].ID)
		old++
	}
	s.window = s.window[old:]
}
