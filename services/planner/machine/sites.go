package machine

import (
	"math"
	"slices"
	"strconv"

	"github.com/reknit/reknit/events"
	"github.com/reknit/reknit/services/planner/place"
	"github.com/reknit/reknit/services/planner/policy"
)

// mostGrouped is among how many nodes all links are compared. First plans cost 1.015 times the best known in the mean of
// ten drawn networks of 32 to 128 nodes, stated and probed five times, and 1.022 where the links of more than 64 were not compared.
const mostGrouped = 128

// grouped returns the nodes with sites that their links tell, where nobody says which there are: nodes of a pipelined job whose links to
// all others are as alike as measurements can tell stand at one site. Links between two sites then share what is learnt of them, as
// those between stated ones do; of links that scatter by a twentieth one in twenty would be told apart from its like otherwise.
// The nodes are as they were where they are too many, or no two of them are alike, or all. O(nodes^3).
func (r *reading) grouped(request events.PlanRequest, nodes []events.Device) []events.Device {
	isStated := func(node events.Device) bool { return node.Site != "" && node.Site != nodes[0].Site }
	if kinds[request.Job.Kind] != policy.Pipelined || len(nodes) > mostGrouped || slices.ContainsFunc(nodes, isStated) {
		return nodes
	}
	measured := slices.DeleteFunc(slices.Clone(request.Links), func(link events.Link) bool {
		return link.BandwidthBytesPerSecond <= 0 || link.Lost || link.Disconnected || link.IsExact() || isUnsure(link.Measurement)
	})
	groups := place.Alike(r.unlike(measured, len(nodes)), mostUnlike)
	if len(groups) < 2 || len(groups) == len(nodes) {
		return nodes
	}
	nodes, site := slices.Clone(nodes), make(map[string]string, len(nodes))
	for g, group := range groups {
		for _, node := range group {
			nodes[node].Site = strconv.Itoa(g)
			site[nodes[node].Node] = nodes[node].Site
		}
	}
	usual := *r.usual
	usual.Between = events.UsualOf(measured, site).Between
	r.usual = &usual
	return nodes
}

// mostUnlike is by how many standard errors the links of two nodes may differ though the nodes are alike, and leastCompared of how many
// links that is worth asking.
const mostUnlike, leastCompared = 1, 8

// unlike tells of two nodes by how many standard errors their links to and from others differ: the mean square of the differences, each
// by its own standard errors, which is one where only measurements differ and scatters by the root of two over their number. It is
// infinite of two with fewer than leastCompared of their links to the same others measured. O(nodes^3).
func (r *reading) unlike(measured []events.Link, n int) [][]float64 {
	table := make([]reads, n*n)
	for _, link := range measured {
		from, isFrom := r.index[link.From]
		if to, isTo := r.index[link.To]; isFrom && isTo {
			table[from*n+to] = r.readsOf(link.Measurement)
		}
	}
	unlike := make([][]float64, n)
	for a := range n {
		unlike[a] = make([]float64, n)
		for b := range a {
			var sum, count float64
			compare := func(one, other reads) {
				if one.variance > 0 && other.variance > 0 {
					sum, count = sum+one.differs(other), count+1
				}
			}
			for other := range n {
				if other != a && other != b {
					compare(table[a*n+other], table[b*n+other])
					compare(table[other*n+a], table[other*n+b])
				}
			}
			unlike[a][b] = math.Inf(1)
			if count >= leastCompared {
				unlike[a][b] = (sum/count - 1) / math.Sqrt(2/count)
			}
			unlike[b][a] = unlike[a][b]
		}
	}
	return unlike
}

// reads are the logarithms of a link's figures, and the variance of either; zero of a link that nobody measured.
type reads struct{ transfer, rate, variance float64 }

// readsOf a link whose uncertainty is two standard errors, as the monitor tells it.
func (r *reading) readsOf(link events.Measurement) reads {
	read, error := r.reads(link.RoundTripSeconds/2, link.BandwidthBytesPerSecond), link.Off()/2
	read.variance = error * error
	return read
}

func (r *reading) reads(latency, rate float64) reads {
	return reads{transfer: math.Log(untoldSeconds + latency + float64(r.network.ActivationBytes)/rate), rate: math.Log(rate)}
}

// differs is the square of by how many standard errors two links differ, in the mean of their figures.
func (l reads) differs(other reads) float64 {
	transfer, rate := l.transfer-other.transfer, l.rate-other.rate
	return (transfer*transfer + rate*rate) / 2 / (l.variance + other.variance)
}

// mostScatter is the mean square of by how many standard errors links that may be as usual are off it, beyond which they are no like
// links that scatter by their measurements alone: of those it is one, and below two where they are off the usual link of other sites, too.
// It says little of fewer links than leastScattered.
const mostScatter, leastScattered = 3, 32

// scatteredOf returns how widely links that may be as usual between two sites scatter. If that is more than their measurements explain
// each has a way of its own. To take them for the usual one costs a first plan 1.02 times the step on DT-FM's case 5 with scattered
// links. Later plans take them for that all the same: what nodes hold moves for no scatter. O(links).
func (r *reading) scatteredOf(links []events.Link, nodes []events.Device) map[[2]string]*scatter {
	scattered := map[[2]string]*scatter{}
	for _, link := range links {
		from, isFrom := r.index[link.From]
		to, isTo := r.index[link.To]
		if !isFrom || !isTo || link.BandwidthBytesPerSecond <= 0 || link.IsExact() || isUnsure(link.Measurement) {
			continue
		}
		ends := [2]string{nodes[from].Site, nodes[to].Site}
		usual, _ := r.at(ends[0], ends[1])
		if scattered[ends] == nil {
			scattered[ends] = &scatter{}
		}
		if !r.differ(r.read(link.Measurement), usual, link.Spread(r.usual.Link("", ""))) {
			scattered[ends].squares += r.readsOf(link.Measurement).differs(r.reads(usual.LatencySeconds, usual.BytesPerSecond))
			scattered[ends].links++
		}
	}
	return scattered
}

// scatter is of how many links that may be as usual the squares of by how many standard errors they are off it.
type scatter struct{ squares, links float64 }

func (s *scatter) isWide() bool {
	return s != nil && s.links >= leastScattered && s.squares > mostScatter*s.links
}
