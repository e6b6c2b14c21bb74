package protocol

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"slices"
)

// Peer is a node and where it stands; Site is empty where nobody named that.
type Peer struct{ Node, Site string }

// A node that joins measures its links to all others, where they are so few, and else to so many of them, as many as
// that of other sites. All of 1,000 nodes would take half a gigabyte, and everybody's time.
const (
	fewPeers     = 16
	mostPartners = 8
	mostSites    = 4
)

// Partners returns to whom a node that joins measures its links: one node of each of four other sites, then nodes of its
// own, then whoever is there. Which of them follows from a hash of both names, so that over many joins all are as often
// chosen, and an attempt that is made again measures the same links. O(n log n).
func Partners(joiner Peer, others []Peer) []string {
	if len(others) > fewPeers {
		others = chosen(joiner, others)
	}
	names := make([]string, len(others))
	for i, other := range others {
		names[i] = other.Node
	}
	return names
}

func chosen(joiner Peer, others []Peer) []Peer {
	ranks := make(map[string]uint64, len(others))
	for _, other := range others {
		ranks[other.Node] = rank(joiner.Node, other.Node)
	}
	others = slices.SortedFunc(slices.Values(others), func(a, b Peer) int {
		return cmp.Or(cmp.Compare(ranks[a.Node], ranks[b.Node]), cmp.Compare(a.Node, b.Node))
	})
	sites := map[string]bool{joiner.Site: true}
	var far, near, rest []Peer
	for _, other := range others {
		switch {
		case other.Site == joiner.Site:
			near = append(near, other)
		case !sites[other.Site] && len(far) < mostSites:
			sites[other.Site] = true
			far = append(far, other)
		default:
			rest = append(rest, other)
		}
	}
	return slices.Concat(far, near, rest)[:mostPartners]
}

func rank(a, b string) uint64 {
	hash := sha256.Sum256([]byte(a + " " + b)) // of a weaker one like names choose like nodes
	return binary.BigEndian.Uint64(hash[:8])
}
