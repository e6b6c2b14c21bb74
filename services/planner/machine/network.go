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
func network(request events.PlanRequest, nodes []events.Device) policy.Network {
	anywhere := events.Usual{
		RoundTripSeconds: events.AssumedRoundTripSeconds, BandwidthBytesPerSecond: events.AssumedBytesPerSecond,
	}
	if median, known := events.UsualOf(request.Links); known {
		anywhere = median
	}
	if told := request.Usual; told != nil {
		anywhere = events.Usual{
			RoundTripSeconds: digits(told.RoundTripSeconds, 3), BandwidthBytesPerSecond: digits(told.BandwidthBytesPerSecond, 3),
		}
	}
	rate, roundTrip := anywhere.BandwidthBytesPerSecond, anywhere.RoundTripSeconds
	usual := policy.Network{BytesPerSecond: rate, LatencySeconds: roundTrip / 2}
	for _, layer := range request.Job.Layers {
		usual.ActivationBytes = max(usual.ActivationBytes, layer.OutputBytes)
	}
	usual.TransferSeconds = float64(usual.ActivationBytes)/rate + roundTrip/2
	usual.DearSeconds = dearTransfers * usual.TransferSeconds
	if len(request.Links) > 0 {
		told := telling{index: make(map[string]int, len(nodes)), site: map[string]string{}, usual: usual}
		for i, node := range nodes {
			told.index[node.Node], told.site[node.Node] = i, node.Site
		}
		told.between = events.UsualLinksOf(request.Links, anywhere, told.site)
		usual.Dear = told.dear(request.Links)
		usual.Links = told.unusual(request.Links, nodes)
	}
	return usual
}

const (
	// unusualFactor is how much faster or slower than the usual a link must be to be told apart. Two measurements of one
	// link, each off by up to half, differ by less; less is noise, and would move layers for nothing.
	unusualFactor = 3
	// mostApart is among how many nodes the links between sites that nobody measured are told apart, too: of more they are too
	// many to be looked at.
	mostApart = 128
)

// telling is what a request tells of the links among numbered nodes.
type telling struct {
	index   map[string]int
	site    map[string]string
	between events.UsualLinks
	usual   policy.Network
	cut     map[[2]int]bool // looked up, never ranged over
}

// dear returns the pairs without a direct link.
func (t *telling) dear(links []events.Link) (dear [][2]int) {
	t.cut = map[[2]int]bool{}
	for _, link := range links {
		from, isFrom := t.index[link.From]
		to, isTo := t.index[link.To]
		if pair := [2]int{min(from, to), max(from, to)}; isFrom && isTo && (link.Disconnected || link.Lost) &&
			!t.cut[pair] {
			t.cut[pair] = true
			dear = append(dear, pair)
		}
	}
	slices.SortFunc(dear, func(a, b [2]int) int { return cmp.Or(cmp.Compare(a[1], b[1]), cmp.Compare(a[0], b[0])) })
	return dear
}

// unusual returns the links that transfer a micro-batch, or a byte of a layer, much faster or slower than usual, in two
// digits. One between two sites is as usual there, unless it was measured to be much faster or slower than that.
func (t *telling) unusual(links []events.Link, nodes []events.Device) (others []policy.Link) {
	measured := map[[2]int]bool{}
	for _, link := range links {
		from, isFrom := t.index[link.From]
		to, isTo := t.index[link.To]
		if !isFrom || !isTo || from == to || link.BandwidthBytesPerSecond <= 0 || measured[[2]int{from, to}] {
			continue
		}
		measured[[2]int{from, to}] = true
		usual, told := t.usually(nodes[from], nodes[to]), policy.Link{
			From: from, To: to, LatencySeconds: digits(link.RoundTripSeconds/2, 2),
			BytesPerSecond: digits(link.BandwidthBytesPerSecond, 2),
		}
		if !t.differ(told, usual) {
			told = usual
		}
		others = t.append(others, told)
	}
	if len(nodes) <= mostApart {
		for from := range nodes {
			for to := range nodes {
				if nodes[from].Site != nodes[to].Site && !measured[[2]int{from, to}] {
					others = t.append(others, t.usually(nodes[from], nodes[to]))
				}
			}
		}
	}
	slices.SortFunc(others,
		func(a, b policy.Link) int { return cmp.Or(cmp.Compare(a.From, b.From), cmp.Compare(a.To, b.To)) })
	return others
}

// append adds a link that is not as usual anywhere, and in use.
func (t *telling) append(others []policy.Link, link policy.Link) []policy.Link {
	anywhere := policy.Link{LatencySeconds: t.usual.LatencySeconds, BytesPerSecond: t.usual.BytesPerSecond}
	if t.cut[[2]int{min(link.From, link.To), max(link.From, link.To)}] || link.BytesPerSecond <= 0 || !t.differ(link, anywhere) {
		return others
	}
	return append(others, link)
}

// usually is what the link from one node to another is taken for, where they stand.
func (t *telling) usually(from, to events.Device) policy.Link {
	usual := t.between.Between(from.Site, to.Site)
	return policy.Link{
		From: t.index[from.Node], To: t.index[to.Node], LatencySeconds: digits(usual.RoundTripSeconds/2, 2),
		BytesPerSecond: digits(usual.BandwidthBytesPerSecond, 2),
	}
}

// differ reports whether two links differ by more than measurements of one.
func (t *telling) differ(a, b policy.Link) bool {
	transfer := func(link policy.Link) float64 {
		return link.LatencySeconds + float64(t.usual.ActivationBytes)/link.BytesPerSecond
	}
	return differs(transfer(a), transfer(b)) || differs(a.BytesPerSecond, b.BytesPerSecond)
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

// digits rounds to so many significant ones.
func digits(value float64, count int) float64 {
	rounded, err := strconv.ParseFloat(strconv.FormatFloat(value, 'e', count-1, 64), 64)
	if err != nil {
		return math.Inf(1) // beyond the largest float
	}
	return rounded
}
