package shards

import (
	"errors"
	"fmt"
	"slices"
	"time"
)

// ErrCorrupt says that all sources of a part served other bytes than its digest's.
var ErrCorrupt = errors.New("content is not that of its digest")

// verified says that the bytes of a complete part are those of its digest. Now it is known who gave others.
func (q *queue) verified(part *fetched) error {
	q.open--
	q.done += int64(len(part.into))
	for _, p := range part.guilty() {
		if !slices.Contains(part.excluded, p) {
			part.excluded = append(part.excluded, p)
			p.corrupt++
		}
	}
	return q.servable()
}

// corrupted says that they are not. Where one source gave them all it is that source's fault. The first time the part is
// doubted; then it is asked whole of one. It fails with ErrCorrupt when a part has no source left.
func (q *queue) corrupted(part *fetched) error {
	givers, kept := part.givers, part.kept
	if part.sifted {
		part.alone = true
		part.reset(none)
	} else {
		q.doubt(part)
	}
	q.pieces = slices.Insert(q.pieces, 0, part.missing()...)
	if len(givers) > 1 || kept {
		return nil
	}
	return q.exclude(part, givers[0])
}

// doubt says that a part is there whole and corrupt, and that nobody knows where.
func (q *queue) doubt(part *fetched) {
	part.doubted, part.alone = true, true
	clear(part.there)
}

// sift keeps what of a doubted part has the checksums of the source that is to give it, and queues the rest for all but those
// who gave it; the claim is over then. Where there are no checksums, or all are met, another source is to be asked first
// (errAbsent), and where there is none, everything of this one. It fails with errSpoilt where the source gave chunks itself
// that are not those of its checksums.
func (q *queue) sift(c *claim, checksums []uint32, now time.Time) error {
	part := c.part
	bad := part.unlike(checksums)
	if slices.ContainsFunc(bad, func(i int) bool { return part.chunks[i].giver == c.peer }) {
		return errSpoilt
	}
	if len(bad) == 0 && q.othersServe(part, c.peer, now) {
		return errAbsent
	}
	part.doubted, part.sifted = false, true
	if len(bad) == 0 {
		part.reset(none)
		return nil
	}
	for _, i := range bad {
		giver := part.chunks[i].giver
		part.accused = append(part.accused, gift{i, giver, checksum(part.bytesOf(i))})
		part.waits[giver] = wait{until: now.Add(strikeWait)}
	}
	part.reset(func(i int) bool { return !slices.Contains(bad, i) })
	part.alone = false
	c.end = c.next
	q.pieces = slices.Insert(q.pieces, 0, part.missing()...)
	return nil
}

// exclude says that a source has other bytes than a part's.
func (q *queue) exclude(part *fetched, p *peer) error {
	p.corrupt++
	part.excluded = append(part.excluded, p)
	return q.servable()
}

// servable fails with ErrCorrupt when a part that is waiting has no source left.
func (q *queue) servable() error {
	for _, waiting := range q.pieces {
		if !slices.ContainsFunc(waiting.part.sources, waiting.part.mayServe) {
			return fmt.Errorf("part %s: all of its %d sources: %w", waiting.part.digest, len(waiting.part.sources), ErrCorrupt)
		}
	}
	return nil
}
