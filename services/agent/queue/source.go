package queue

import "time"

// corruptOut is after how many corrupt parts a source is asked for nothing more.
const corruptOut = 2

// Giving is how a source gives a range of a part.
type Giving int

// Kinds of sources, as they turn out.
const (
	Untold  Giving = iota // it did not give anything yet, and may be any of these
	Pieces                // a range is to be had by itself
	Whole                 // parts lie there whole, and are claimed so
	Ordered               // the same, and nobody knows where chunks lie: all that is before a range comes with it
)

// Source is a store to fetch from, as the queue sees it.
type Source struct {
	Name      string
	Connected bool          // the caller says so
	Gives     Giving        // the caller says so
	GivenUp   bool          // what it was asked for is asked of others: the caller is to make its connection anew
	Duplicate int64         // bytes that came although they were there, or not wanted any more
	Corrupt   int           // parts
	Stalled   int           // times
	RoundTrip time.Duration // of its connection, as the caller measured it

	meter   meter
	claims  []*Claim
	asked   int64     // bytes of chunks that were asked for and did not come yet
	strikes int       // stalls in a row
	rests   time.Time // until when it is asked for nothing
}

// NewSource returns a source of a planned rate in bytes/s; zero means that nothing is known.
func NewSource(name string, planned float64) *Source {
	return &Source{Name: name, meter: meter{planned: planned}}
}

// Out reports whether a source is asked for nothing more.
func (s *Source) Out() bool { return s.Corrupt >= corruptOut }

// Failing reports whether a source stalled and nothing came of it since.
func (s *Source) Failing() bool { return s.strikes > 0 }

// Busy reports whether a source is asked for something.
func (s *Source) Busy() bool { return len(s.claims) > 0 }

// Rests reports whether nothing is on its way from a source.
func (s *Source) Rests() bool { return s.asked == 0 }

// Bytes is how many came of a source.
func (s *Source) Bytes() int64 { return s.meter.bytes }

// Planned is the rate that NewSource was given, in bytes/s.
func (s *Source) Planned() float64 { return s.meter.planned }

// Recent is the rate of a source lately, in bytes/s; zero where nothing comes.
func (s *Source) Recent(now time.Time) float64 {
	if !s.meter.asked || s.meter.bytes == 0 {
		return 0
	}
	rate, _ := s.meter.speed(now)
	return rate
}

// Mean is the rate of a source over all the time in which it was asked for something, in bytes/s.
func (s *Source) Mean(now time.Time) float64 { return s.meter.mean(now) }

// Waited is how long it took from when a source was asked first until its first byte came, in seconds; zero where nothing came.
func (s *Source) Waited(now time.Time) float64 { return s.meter.waited(now) }

// givesWhole reports whether parts lie whole with a source.
func (s *Source) givesWhole() bool { return s.Gives == Whole || s.Gives == Ordered }

// able reports whether a source may be asked for something more.
func (s *Source) able(now time.Time) bool {
	return s.Connected && !s.Out() && !now.Before(s.rests)
}

// backlog is how many bytes a source is still asked for.
func (s *Source) backlog() int64 {
	bytes := int64(0)
	for _, c := range s.claims {
		bytes += c.End - c.Next
	}
	return bytes
}

func (s *Source) claim(taken partRange, now time.Time) *Claim {
	asked := taken.first / ChunkBytes * ChunkBytes
	c := &Claim{
		Part: taken.part, Source: s, Next: taken.first, End: taken.end, first: taken.first, most: taken.end, asked: asked,
	}
	s.claims = append(s.claims, c)
	s.meter.start(now)
	return c
}
