package shards

import (
	"crypto/sha256"
	"fmt"
)

// journal says which chunks of a layer are in its buffer, behind whose bytes it lies in the same file: a digest of how the
// layer is cut into parts, then a byte for each chunk of one part after the other. It is believed until a part's digest
// says otherwise.
type journal struct {
	there [][]byte // of each part
	kept  bool     // an earlier process left the bytes
	alike bool     // and cut them alike
}

// journalBytes is how long the journal of so cut a layer is.
func journalBytes(parts []Part) int64 {
	bytes := int64(sha256.Size)
	for _, part := range parts {
		bytes += chunksOf(part.End - part.First)
	}
	return bytes
}

// openJournal reads a journal. Where it is of another cut, it is begun anew.
func openJournal(at []byte, parts []Part, kept bool) *journal {
	hash := sha256.New()
	for _, part := range parts {
		fmt.Fprintln(hash, part.Digest, part.First, part.End)
	}
	cut, chunks := hash.Sum(nil), at[sha256.Size:]
	j := &journal{kept: kept, alike: kept && string(at[:sha256.Size]) == string(cut)}
	if !j.alike {
		clear(chunks) // first: what is said of one cut is never to be read as said of another
		copy(at, cut)
	}
	for _, part := range parts {
		length := chunksOf(part.End - part.First)
		j.there, chunks = append(j.there, chunks[:length]), chunks[length:]
	}
	return j
}

// of returns which chunks of a part are there, and whether all are and it is verified. Where an earlier process cut the layer
// otherwise, only whole parts are found. O(bytes) of parts that may be whole.
func (j *journal) of(number int, part *fetched) (there []byte, verified bool) {
	there = j.there[number]
	complete := true
	for _, chunk := range there {
		complete = complete && chunk != 0
	}
	if !j.kept || j.alike && !complete || digestOf(sha256.Sum256(part.into)) != part.digest {
		return there, false
	}
	for i := range there {
		there[i] = 1
	}
	return there, true
}
