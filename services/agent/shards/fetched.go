package shards

import (
	"crypto/sha256"
	"hash"
	"slices"
	"time"
)

// fetched is a part on its way.
type fetched struct {
	digest   string
	layer    *awaited
	into     []byte
	there    []byte // of each chunk whether it is there
	chunks   []chunk
	sources  []*peer          // all that may have it
	excluded []*peer          // that served other bytes, or lack some for good
	holes    map[*peer]string // the chunks' name of a source's object that lacks some
	givers   []*peer          // of the bytes that came
	kept     bool             // some bytes are of an earlier try
	waits    map[*peer]wait
	left     int64 // bytes that are not there yet
	hash     hash.Hash
	hashed   int64 // bytes from the beginning on that the hash has seen
	hashes   bool  // somebody is at it
	alone    bool  // the whole was corrupt: now one source gives all, so that it is known who it was
	doubted  bool  // the whole is there and corrupt, and nobody's checksums were asked yet
	sifted   bool  // they were: the next time nothing of it is kept
	accused  []gift
}

// chunk is what is known of a chunk of a part.
type chunk struct {
	lacks int64 // bytes that are not there yet
	giver *peer // nil: several
}

// gift is a chunk that a checksum spoke against, and was fetched again.
type gift struct {
	chunk    int
	giver    *peer
	checksum uint32 // of what came first
}

// wait is how long a source is not asked for a part.
type wait struct {
	until  time.Time
	length time.Duration
	spare  bool // it may have the part already, and was not asked
}

// serves reports whether a source may be asked for the part now.
func (f *fetched) serves(p *peer, now time.Time) bool {
	return f.mayServe(p) && !now.Before(f.waits[p].until)
}

func (f *fetched) mayServe(p *peer) bool {
	return p.corrupt < corruptOut && slices.Contains(f.sources, p) && !slices.Contains(f.excluded, p)
}

// relieves reports whether a source that waits to be a spare may be asked before that: it gives other parts, and has nothing
// left to be asked for.
func (f *fetched) relieves(p *peer) bool {
	return f.waits[p].spare && p.meter.bytes > 0 && f.mayServe(p)
}

// postpone has a source asked for the part later, and ever later. A spare that was asked before its time waits for that.
func (f *fetched) postpone(p *peer, now time.Time) {
	if waits := f.waits[p]; waits.spare && now.Before(waits.until) {
		f.waits[p] = wait{until: waits.until}
		return
	}
	length := min(max(absentWait, 2*f.waits[p].length), absentLongest)
	f.waits[p] = wait{until: now.Add(length), length: length}
}

// lacked says that chunks of a source's object are gone.
func (f *fetched) lacked(c *claim) {
	if f.holes == nil {
		f.holes = map[*peer]string{}
	}
	f.holes[c.peer] = c.object
}

// holed reports whether a source's object is one of which chunks are gone.
func (f *fetched) holed(c *claim) bool {
	object, holed := f.holes[c.peer]
	return holed && object == c.object
}

// bytesOf returns a chunk's place.
func (f *fetched) bytesOf(chunk int) []byte {
	return f.into[chunk*chunkBytes : min((chunk+1)*chunkBytes, len(f.into))]
}

func none(int) bool { return false }

// reset forgets the bytes of a part but those of chunks to keep.
func (f *fetched) reset(keep func(chunk int) bool) {
	f.left, f.hashed, f.hashes, f.givers, f.kept = 0, 0, false, nil, false
	f.hash, f.chunks = sha256.New(), make([]chunk, len(f.there))
	for i := range f.chunks {
		if keep(i) {
			f.there[i], f.kept = 1, true
			continue
		}
		f.there[i] = 0
		f.chunks[i].lacks = int64(len(f.bytesOf(i)))
		f.left += f.chunks[i].lacks
	}
}

// missing returns the runs of chunks that are not there.
func (f *fetched) missing() (pieces []piece) {
	for i := range f.there {
		first := int64(i) * chunkBytes
		end := first + int64(len(f.bytesOf(i)))
		switch last := len(pieces) - 1; {
		case f.there[i] != 0:
		case last >= 0 && pieces[last].end == first:
			pieces[last].end = end
		default:
			pieces = append(pieces, piece{f, first, end})
		}
	}
	return pieces
}

// stored says that bytes of a source are in their place.
func (f *fetched) stored(p *peer, offset, bytes int64) {
	f.left -= bytes
	if bytes > 0 && !slices.Contains(f.givers, p) {
		f.givers = append(f.givers, p)
	}
	for end := offset + bytes; offset < end; {
		i := int(offset / chunkBytes)
		c, here := &f.chunks[i], min(end, int64(i+1)*chunkBytes)-offset
		if c.lacks == int64(len(f.bytesOf(i))) {
			c.giver = p
		} else if c.giver != p {
			c.giver = nil
		}
		if c.lacks -= here; c.lacks == 0 {
			f.there[i] = 1
		}
		offset += here
	}
}

// unlike returns the chunks that have other checksums than these.
func (f *fetched) unlike(checksums []uint32) (chunks []int) {
	for i, expected := range checksums {
		if checksum(f.bytesOf(i)) != expected {
			chunks = append(chunks, i)
		}
	}
	return chunks
}

// guilty are who gave a chunk that is another one in the verified part.
func (f *fetched) guilty() (givers []*peer) {
	for _, gift := range f.accused {
		if gift.giver != nil && !slices.Contains(givers, gift.giver) && checksum(f.bytesOf(gift.chunk)) != gift.checksum {
			givers = append(givers, gift.giver)
		}
	}
	return givers
}
