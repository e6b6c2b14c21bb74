package replicate

import "math"

// PullSeconds is how long a node takes to fetch while nobody else does, from everybody who can send, all at a time: of
// each group of layers so many bytes, from the senders that hold all of the group. Senders are numbered by their rates,
// bytes a second over the link from each; together they send at most as fast as the downlink receives. It is infinite
// where nobody can send a group.
//
// It is the optimum of the linear program: the worst, over all sets of groups, of their bytes over the rates of who
// holds any of them. The optimum is found in as many steps as groups and senders have pairs if each group alone fills
// the downlink. Otherwise a Newton iteration on least cuts finds it, with at most one maximum flow for each group.
func PullSeconds(groupBytes []int64, senders [][]int, bytesPerSecond []float64, downlink float64) float64 {
	total, slowest, fills := int64(0), 0.0, true
	for g, bytes := range groupBytes {
		rate := 0.0
		for _, sender := range senders[g] {
			rate += bytesPerSecond[sender]
		}
		total += bytes
		slowest, fills = max(slowest, secondsFor(bytes, rate)), fills && rate >= downlink
	}
	seconds := max(slowest, secondsFor(total, downlink))
	if fills || len(groupBytes) == 1 || math.IsInf(seconds, 1) {
		return seconds
	}
	p := newPull(groupBytes, senders, bytesPerSecond)
	for p.flow(seconds) < total {
		longer := p.secondsOfCut()
		if longer <= seconds {
			break // what is missing is less than a byte
		}
		seconds = longer
	}
	return seconds
}

func secondsFor(bytes int64, rate float64) float64 {
	if bytes == 0 {
		return 0
	}
	return float64(bytes) / rate
}

// pull is a node's fetch as a flow of bytes: from the start to groups, on to their senders, and to the end.
type pull struct {
	network
	start, end       int
	bytes            []int64
	rates            []float64
	entries, between []int // edges to the groups, and from groups to senders
	exits            []int // per sender: the edge to the end
}

func newPull(groupBytes []int64, senders [][]int, rates []float64) *pull {
	p := &pull{bytes: groupBytes, rates: rates}
	p.start, p.end = p.vertex(), p.vertex()
	vertices := make([]int, len(rates))
	for s := range rates {
		vertices[s] = p.vertex()
		p.exits = append(p.exits, p.connect(vertices[s], p.end))
	}
	for g := range groupBytes {
		group := p.vertex()
		p.entries = append(p.entries, p.connect(p.start, group))
		for _, s := range senders[g] {
			p.between = append(p.between, p.connect(group, vertices[s]))
		}
	}
	return p
}

// flow pushes as many bytes as pass in seconds.
func (p *pull) flow(seconds float64) int64 {
	total := int64(0)
	for g, edge := range p.entries {
		p.setCapacity(edge, p.bytes[g])
		total += p.bytes[g]
	}
	for _, edge := range p.between {
		p.setCapacity(edge, unlimited)
	}
	for s, edge := range p.exits {
		p.setCapacity(edge, int64(min(math.Ceil(p.rates[s]*seconds), float64(total))))
	}
	return p.maximise(p.start, p.end)
}

// secondsOfCut is how long the groups that fell short take together, with all of their senders.
func (p *pull) secondsOfCut() float64 {
	bytes, rate := int64(0), 0.0
	for g, edge := range p.entries {
		if p.reachable(p.to[edge]) {
			bytes += p.bytes[g]
		}
	}
	for s, edge := range p.exits {
		if p.reachable(p.to[edge^1]) {
			rate += p.rates[s]
		}
	}
	return secondsFor(bytes, rate)
}
