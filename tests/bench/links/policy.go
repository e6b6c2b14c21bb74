package main

import (
	"fmt"
	"slices"

	"github.com/reknit/reknit/services/restorer/replicate"
)

// partBytes is the size of a part, as agents make them.
const partBytes = 8 << 20

// The policies, by what the Chaos papers compare with (section VI-A).
const (
	policyOurs       = "reknit"
	policySingle     = "fastest neighbour"     // Elan, EDL+
	policyEven       = "even over neighbours"  // Chaos with equal shards
	policyRelays     = "even over relays"      // Autoscaling
	policyCheckpoint = "shared store and back" // Pollux
)

// Both halves of ours alone. They are told beside it, and it is not judged by them.
const (
	policyShares  = "best fixed shares" // Chaos
	policySoonest = "whoever is soonest"
)

// Plain TCP shows what the machine and the links let pass at best: over warmed connections, divided as the bound divides, of bytes that
// are no state.
const (
	policyPlain  = "plain TCP"
	policyHashed = "plain TCP, hashed"
)

// policySecured is ours with proof of who is there, and TLS, as on a secured installation.
const policySecured = "reknit, with keys"

// source is a node that has the state, as another sees it.
type source struct {
	Bucket         string
	Address        string
	Secured        bool    // over TLS, with a certificate at both ends
	BytesPerSecond float64 // of the link to it; 0 where nobody measured it
}

// bucket is the name of a process's bucket, and of the process.
func bucket(number int) string { return fmt.Sprint("node-", number) }

// pull is parts of the state that some sources give. The pulls of a policy run at the same time.
type pull struct {
	Sources []source
	Parts   []int
	Givers  []int // of each part, the source that is to give it, the others being spares; none: whoever is soonest
}

// together lets every source give whatever is wanted next.
func together(sources []source, parts int) []pull {
	return []pull{{Sources: sources, Parts: span(0, parts)}}
}

// even takes the same share from each, whatever its link.
func even(sources []source, parts int) []pull {
	counts := make([]int64, len(sources))
	for i := range sources {
		counts[i] = int64((i+1)*parts/len(sources) - i*parts/len(sources))
	}
	return fixed(sources, counts)
}

// shares takes from each what the restorer's division gives it, when every link is known exactly and keeps its rate.
func (s scenario) shares(sources []source, parts int) ([]pull, error) {
	fetch := s.fetch(int64(parts))
	fetched, err := replicate.PlanFetch(fetch)
	if err != nil {
		return nil, err
	}
	counts := make([]int64, len(sources))
	for _, share := range fetched.Sources[0] {
		counts[share.Node] += share.End - share.First
	}
	return fixed(sources, counts), nil
}

// fetch is what the node that joins, the last one, fetches from its neighbours, as the restorer sees it: in whole parts, over
// each link from a round trip on.
func (s scenario) fetch(parts int64) replicate.Fetch {
	joiner := len(s.Neighbours)
	fetch := replicate.Fetch{
		LayerBytes: []int64{parts * partBytes}, ShardBytes: partBytes, Holders: make([][]int, 1),
		Needs:                 []replicate.Need{{Node: joiner}},
		EgressBytesPerSecond:  make([]float64, joiner+1),
		IngressBytesPerSecond: make([]float64, joiner+1),
	}
	for range joiner + 1 {
		fetch.LinkBytesPerSecond = append(fetch.LinkBytesPerSecond, make([]float64, joiner+1))
		fetch.StartSeconds = append(fetch.StartSeconds, make([]float64, joiner+1))
	}
	for i, shape := range s.Neighbours {
		rate := shape.BytesPerSecond()
		fetch.Holders[0] = append(fetch.Holders[0], i)
		fetch.EgressBytesPerSecond[i], fetch.LinkBytesPerSecond[i][joiner] = rate, rate
		fetch.IngressBytesPerSecond[joiner] += rate
		fetch.StartSeconds[i][joiner] = 2 * shape.Delay.Seconds()
	}
	return fetch
}

// planned begins with fixed shares; what is missing after a while comes from whoever is soonest, as an agent has it.
func planned(shares []pull, sources []source) []pull {
	whole := pull{Sources: sources}
	for _, share := range shares {
		for _, part := range share.Parts {
			whole.Parts = append(whole.Parts, part)
			whole.Givers = append(whole.Givers, slices.Index(sources, share.Sources[0]))
		}
	}
	return []pull{whole}
}

// fixed takes so many parts from each and nothing else.
func fixed(sources []source, counts []int64) []pull {
	var pulls []pull
	first := 0
	for i, count := range counts {
		if count > 0 {
			pulls = append(pulls, pull{Sources: sources[i : i+1], Parts: span(first, first+int(count))})
		}
		first += int(count)
	}
	return pulls
}

// span returns the numbers from first to before end.
func span(first, end int) []int {
	numbers := make([]int, 0, end-first)
	for i := first; i < end; i++ {
		numbers = append(numbers, i)
	}
	return numbers
}

// fastest returns the neighbour with the fastest link.
func (s scenario) fastest() int {
	best := 0
	for i, shape := range s.Neighbours {
		if shape.MegabitsPerSecond > s.Neighbours[best].MegabitsPerSecond {
			best = i
		}
	}
	return best
}
