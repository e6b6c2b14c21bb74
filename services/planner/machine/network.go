package machine

import (
	"cmp"
	"math"
	"slices"
	"strconv"

	"github.com/reknit/reknit/events"
	"github.com/reknit/reknit/services/planner/policy"
)

// network takes the median of the measured links as the usual one where the request names none, in three digits: the
// monitor tells no smaller changes, and a plan that was computed ahead holds although the lost node's links are gone.
func network(request events.PlanRequest, nodes []string) policy.Network {
	var rates, roundTrips []float64
	for _, link := range request.Links {
		if link.BandwidthBytesPerSecond > 0 {
			rates = append(rates, link.BandwidthBytesPerSecond)
			roundTrips = append(roundTrips, link.RoundTripSeconds)
		}
	}
	if told := request.Usual; told != nil {
		rates, roundTrips = []float64{told.BandwidthBytesPerSecond}, []float64{told.RoundTripSeconds}
	}
	rate, roundTrip := median(rates, events.AssumedBytesPerSecond), median(roundTrips, events.AssumedRoundTripSeconds)
	usual := policy.Network{BytesPerSecond: rate, LatencySeconds: roundTrip / 2}
	for _, layer := range request.Job.Layers {
		usual.ActivationBytes = max(usual.ActivationBytes, layer.OutputBytes)
	}
	usual.TransferSeconds = float64(usual.ActivationBytes)/rate + roundTrip/2
	usual.DearSeconds = dearTransfers * usual.TransferSeconds
	usual.Dear, usual.Links = unusual(request.Links, nodes, usual)
	return usual
}

// unusualFactor is how much faster or slower than the usual a link must be to be told apart. Two measurements of one
// link, each off by up to half, differ by less; less is noise, and would move layers for nothing.
const unusualFactor = 3

// unusual returns the pairs without a direct link, and the links that transfer a micro-batch, or a byte of a layer,
// much faster or slower than usual, in two digits.
func unusual(links []events.Link, nodes []string, usual policy.Network) (dear [][2]int, others []policy.Link) {
	if len(links) == 0 {
		return nil, nil
	}
	index := make(map[string]int, len(nodes))
	for i, node := range nodes {
		index[node] = i
	}
	cut := map[[2]int]bool{} // looked up, never ranged over
	for _, link := range links {
		from, isFrom := index[link.From]
		to, isTo := index[link.To]
		if pair := [2]int{min(from, to), max(from, to)}; isFrom && isTo && (link.Disconnected || link.Lost) &&
			!cut[pair] {
			cut[pair] = true
			dear = append(dear, pair)
		}
	}
	slices.SortFunc(dear, func(a, b [2]int) int { return cmp.Or(cmp.Compare(a[1], b[1]), cmp.Compare(a[0], b[0])) })
	for _, link := range links {
		from, isFrom := index[link.From]
		to, isTo := index[link.To]
		if !isFrom || !isTo || from == to || link.BandwidthBytesPerSecond <= 0 ||
			cut[[2]int{min(from, to), max(from, to)}] {
			continue
		}
		measured := policy.Link{
			From: from, To: to, LatencySeconds: digits(link.RoundTripSeconds/2, 2),
			BytesPerSecond: digits(link.BandwidthBytesPerSecond, 2),
		}
		transfer := measured.LatencySeconds + float64(usual.ActivationBytes)/measured.BytesPerSecond
		if measured.BytesPerSecond > 0 &&
			(differs(transfer, usual.TransferSeconds) || differs(measured.BytesPerSecond, usual.BytesPerSecond)) {
			others = append(others, measured)
		}
	}
	slices.SortFunc(others,
		func(a, b policy.Link) int { return cmp.Or(cmp.Compare(a.From, b.From), cmp.Compare(a.To, b.To)) })
	return dear, slices.CompactFunc(others, func(a, b policy.Link) bool { return a.From == b.From && a.To == b.To })
}

func differs(a, b float64) bool { return a > unusualFactor*b || b > unusualFactor*a }

// speeds is how much faster than the slowest each node is, in quarters rounded down; nil where none is.
func speeds(nodes []events.Device, slowest float64) []float64 {
	list, equal := make([]float64, len(nodes)), true
	for i, node := range nodes {
		list[i] = max(1, math.Floor(4*node.SpeedFactor/slowest)/4)
		equal = equal && list[i] == 1
	}
	if equal {
		return nil
	}
	return list
}

// median is the middle one of values, in three significant digits.
func median(values []float64, otherwise float64) float64 {
	if len(values) == 0 {
		return otherwise
	}
	slices.Sort(values)
	rounded := digits(values[len(values)/2], 3)
	if math.IsInf(rounded, 0) {
		return otherwise
	}
	return rounded
}

// digits rounds to so many significant ones.
func digits(value float64, count int) float64 {
	rounded, err := strconv.ParseFloat(strconv.FormatFloat(value, 'e', count-1, 64), 64)
	if err != nil {
		return math.Inf(1) // beyond the largest float
	}
	return rounded
}
