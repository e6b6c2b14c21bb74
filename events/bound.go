package events

import (
	"bytes"
	"fmt"
	"strings"
)

// Bound is how much data an event may have. It counts before anything of the data is fetched, decompressed or decoded.
type Bound struct {
	Bytes  int // of JSON, not compressed
	Values int // in it, as Values counts them: a list of two million empty objects is 6 MB of JSON, and hundreds of MB in memory
}

// The bounds of all events: what a service says, what a node or a user says, and the kinds of which a node says more.
//
// A node's are for MostUnits units, MostNodes nodes with keys for ids, and numbers of 16 digits (bound_test.go has the greatest of each
// kind). A consent with the plan of such a cluster, for which nodes are asked after a log was lost, is 4.9 MB and 175,000 values, one with
// all that a node can hold 2.4 MB and 98,000, a request to join 1.0 MB and 33,000, an offer of a unit of 109 GiB in parts of 8 MiB
// 1.7 MB and 56,000. To decode a payload at its bound allocates 64 MiB at most, all together. The greatest that services say are plans
// with what moves: 64 MiB hold some 200,000 transfers.
var (
	ofService = Bound{Bytes: MaxPayloadBytes, Values: 1 << 23}
	ofNode    = Bound{Bytes: MaxEventBytes, Values: MaxEventBytes / 2}
	ofNodes   = map[Kind]Bound{
		JoinRequested:       {Bytes: 2 << 20, Values: 1 << 16},
		NodeProfiled:        {Bytes: 1 << 20, Values: 1 << 15},
		Consented:           {Bytes: 8 << 20, Values: 1 << 18},
		ShardOffered:        {Bytes: 2 << 20, Values: 1 << 16},
		ShardReceived:       {Bytes: 2 << 20, Values: 1 << 16},
		RestorationFailed:   {Bytes: 512 << 10, Values: 1 << 13},
		TrainingDigested:    {Bytes: 1 << 20, Values: 1 << 15},
		SnapshotWritten:     {Bytes: 256 << 10, Values: 1 << 15},
		WithdrawalRequested: {Bytes: 256 << 10, Values: 1 << 15},
		SnapshotFailed:      {Bytes: 256 << 10, Values: 1 << 15},
		SnapshotResumed:     {Bytes: 256 << 10, Values: 1 << 15},
	}
)

// BoundOf returns the bound of an event of a kind from a source: "/monitor", "/user" or "/node/n4".
func BoundOf(kind Kind, source string) Bound {
	bound, isMore := ofNodes[kind]
	switch isNode := strings.HasPrefix(source, NodeSource("")); {
	case isNode && isMore:
		return bound
	case isNode || source == "/"+anyone:
		return ofNode
	}
	return ofService
}

// Check reports why data is beyond the bound. O(bytes).
func (b Bound) Check(data []byte) error {
	if len(data) > b.Bytes {
		return &RuleError{"size", &FieldError{Field: whole, Expected: fmt.Sprintf("at most %d bytes", b.Bytes), Got: fmt.Sprint(len(data))}}
	}
	if values := Values(data); values > b.Values {
		return &RuleError{"size", &FieldError{Field: whole, Expected: fmt.Sprintf("at most %d values", b.Values), Got: fmt.Sprint(values)}}
	}
	return nil
}

// Values returns how many values JSON has at most: objects, lists, and what is in them. It may be no JSON.
func Values(data []byte) int {
	count := 1
	for at := 0; at < len(data); at++ {
		switch data[at] {
		case '{', '[', ',':
			count++
		case '"':
			at += lengthOfText(data[at+1:])
		}
	}
	return count
}

// lengthOfText returns how far behind the quote that begins a text the one is that ends it.
func lengthOfText(data []byte) int {
	for at := 0; ; at++ {
		next := bytes.IndexByte(data[at:], '"')
		if next < 0 {
			return len(data)
		}
		at += next
		escapes := 0
		for escapes < at && data[at-1-escapes] == '\\' {
			escapes++
		}
		if escapes%2 == 0 {
			return at + 1
		}
	}
}
