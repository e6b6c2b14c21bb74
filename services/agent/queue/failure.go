package queue

import (
	"errors"
	"fmt"
	"slices"
	"time"
)

// ErrCorrupt says that all sources of a part serve other bytes than its digest's.
var ErrCorrupt = errors.New("content is not that of its digest")

// Corrupt is such a part. Its error is ErrCorrupt.
type Corrupt struct {
	Digest  string
	Sources int      // of the part
	Served  []string // those of them that served other bytes, of this part or another, by name
}

func (p *Part) corrupt() *Corrupt {
	c := &Corrupt{Digest: p.Digest, Sources: len(p.sources)}
	for _, source := range p.sources {
		if source.Corrupt > 0 {
			c.Served = append(c.Served, source.Name)
		}
	}
	return c
}

func (c *Corrupt) Error() string {
	return fmt.Sprintf("part %s: all of its %d sources: %v", c.Digest, c.Sources, ErrCorrupt)
}

// Unwrap returns ErrCorrupt.
func (c *Corrupt) Unwrap() error { return ErrCorrupt }

// How long a source that failed is left alone.
const (
	absentWait    = 20 * time.Millisecond // doubled each time: asking for the first parts must not starve the rest
	absentLongest = time.Second
	absentPause   = 5 * time.Millisecond // between two questions to one source
	foreignWait   = 100 * time.Millisecond
	foreignOut    = 3 // answers for one part that were something else
	strikesOut    = 3
	strikeWait    = time.Second
)

// Absent ends a claim whose source does not have the part yet.
func (q *Queue) Absent(c *Claim, now time.Time) {
	c.Part.postpone(c.Source, now)
	c.Source.rests = now.Add(absentPause)
	c.Source.strikes = 0
	q.rejoin(c)
	q.Release(c, now)
}

// Needs reports whether a source may still be asked for some of a part: that waits, or the source has a claim of it.
// O(waiting ranges).
func (q *Queue) Needs(s *Source, part *Part) bool {
	return part.mayServe(s) && slices.ContainsFunc(q.waiting, func(r partRange) bool { return r.part == part }) ||
		slices.ContainsFunc(s.claims, func(c *Claim) bool { return c.Part == part })
}

// rejoin returns a tail to the claim it was cut from, if that still goes on.
func (q *Queue) rejoin(tail *Claim) {
	for _, s := range q.Sources {
		for _, c := range s.claims {
			if c.Part == tail.Part && c.End == tail.Next && c.Next < c.End && tail.End <= c.most {
				c.End, tail.End = tail.End, tail.Next
				return
			}
		}
	}
}

// Stall ends a claim whose source was silent for so long, or whose connection broke. One fault ends all claims of a
// source, and counts once.
func (q *Queue) Stall(c *Claim, now time.Time, silence time.Duration) {
	s := c.Source
	if now.Sub(s.rests) > silence/2 {
		s.Stalled++
		s.strikes++
		s.rests = now
		if s.strikes >= strikesOut {
			s.rests = now.Add(strikeWait)
		}
	}
	if q.othersServe(c.Part, s, now) {
		c.Part.waits[s] = wait{until: now.Add(silence)}
	}
	q.Release(c, now)
}

func (q *Queue) othersServe(part *Part, s *Source, now time.Time) bool {
	return slices.ContainsFunc(q.Sources, func(other *Source) bool {
		return other != s && other.able(now) && part.serves(other, now)
	})
}

// Corrupted says that the bytes of a complete part are not those of its digest. All of them are fetched again. Other
// sources are asked if one source gave all of them, or is the only giver that gave a corrupt part before. One source is
// asked for the whole if nobody knows which giver it was.
func (q *Queue) Corrupted(part *Part) {
	innocent := func(s *Source) bool { return s.Corrupt == 0 }
	suspects := slices.DeleteFunc(slices.Clone(part.givers), innocent)
	if len(suspects) == 0 {
		suspects = part.givers
	}
	part.reset()
	q.giveBack(part.whole())
	part.alone = len(suspects) > 1
	if !part.alone {
		q.Exclude(part, suspects[0])
	}
}

// Foreign ends a claim whose source answered with something else than the part. It may be a mistake on the way; foreignOut of
// them are the source's own, and it is left out of the part then.
func (q *Queue) Foreign(c *Claim, now time.Time) {
	part, s := c.Part, c.Source
	if part.foreign[s]++; part.foreign[s] == foreignOut {
		q.Exclude(part, s)
	}
	part.waits[s] = wait{until: now.Add(foreignWait)}
	q.Release(c, now)
}

// Exclude says that a source has other bytes than a part's.
func (q *Queue) Exclude(part *Part, s *Source) {
	s.Corrupt++
	part.excluded = append(part.excluded, s)
}

// Servable fails with ErrCorrupt when a part that waits has no source left.
func (q *Queue) Servable() error {
	for _, waiting := range q.waiting {
		if part := waiting.part; !slices.ContainsFunc(part.sources, part.mayServe) {
			return part.corrupt()
		}
	}
	return nil
}
