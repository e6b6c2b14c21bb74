package machine

import (
	"cmp"
	"math"
	"slices"
	"strconv"

	"github.com/reknit/reknit/events"
	"github.com/reknit/reknit/services/planner/policy"
)

// network takes the median of the measured links as the usual one where the request names none, in three digits unless it is
// exact: a plan that was computed ahead holds although the lost node's links are gone.
func network(request events.PlanRequest, nodes []events.Device) policy.Network {
	r := reading{usual: request.Usual, index: make(map[string]int, len(nodes)), site: map[string]string{}}
	for i, node := range nodes {
		r.index[node.Node], r.site[node.Node] = i, node.Site
	}
	if r.usual == nil {
		r.usual = events.UsualOf(request.Links, r.site)
	}
	if r.usual == nil {
		r.usual = events.AssumedUsual()
	}
	rate, roundTrip := r.usual.BandwidthBytesPerSecond, r.usual.RoundTripSeconds
	n := policy.Network{BytesPerSecond: rate, LatencySeconds: roundTrip / 2}
	for _, layer := range request.Job.Layers {
		n.ActivationBytes = max(n.ActivationBytes, layer.OutputBytes)
	}
	n.TransferSeconds = float64(n.ActivationBytes)/rate + roundTrip/2
	n.DearSeconds = dearTransfers * n.TransferSeconds
	r.network, r.bySites = n, map[[2]string]policy.Link{}
	nodes = r.grouped(request, nodes)
	n.Dear = r.dear(request.Links)
	if len(nodes) > mostApart {
		n.Sites, n.SiteLinks = r.sites(nodes)
	}
	if request.Current == nil && request.Usual == nil && len(nodes) <= mostGrouped { // all links are listed
		r.scattered = r.scatteredOf(request.Links, nodes)
	}
	n.Links = r.unusual(request.Links, nodes, n.Dear)
	return n
}

// mostApart is among how many nodes links that nobody measured are told apart one by one, too, where links of their sites are not as
// usual. Among more nodes these are too many to be looked at, and told by their sites.
const mostApart = 64

// sites numbers the sites of nodes, and returns what links from one to another, or within one, are taken for where that is not as
// usual. O(nodes + pairs of sites that are told of).
func (r *reading) sites(nodes []events.Device) (sites []int, unusual []policy.Link) {
	number := map[string]int{}
	for _, node := range nodes {
		if _, known := number[node.Site]; !known {
			number[node.Site] = len(number)
		}
		sites = append(sites, number[node.Site])
	}
	for _, between := range r.usual.Between {
		from, isFrom := number[between.From]
		to, isTo := number[between.To]
		if link, isUnusual := r.at(between.From, between.To); isFrom && isTo && isUnusual {
			link.From, link.To = from, to
			unusual = append(unusual, link)
		}
	}
	if unusual == nil {
		return nil, nil
	}
	return sites, unusual
}

// reading is how a request's links are read, of nodes by their number.
type reading struct {
	usual   *events.Usual
	index   map[string]int
	site    map[string]string
	network policy.Network            // without unusual links
	bySites map[[2]string]policy.Link // what at has answered
	// scattered is between which sites links are each as they were measured, and none as usual there: where it is wide.
	scattered map[[2]string]*scatter
}

// dear returns the pairs without a direct link.
func (r *reading) dear(links []events.Link) (dear [][2]int) {
	cut := map[[2]int]bool{} // looked up, never ranged over
	for _, link := range links {
		from, isFrom := r.index[link.From]
		to, isTo := r.index[link.To]
		if pair := [2]int{min(from, to), max(from, to)}; isFrom && isTo && (link.Disconnected || link.Lost) && !cut[pair] {
			cut[pair] = true
			dear = append(dear, pair)
		}
	}
	slices.SortFunc(dear, func(a, b [2]int) int { return cmp.Or(cmp.Compare(a[1], b[1]), cmp.Compare(a[0], b[0])) })
	return dear
}

// unusual returns the links, but for dear ones, that transfer a micro-batch, or a byte of a layer, faster or slower than usual
// by more than measurements of one link may differ: less is noise, and would move layers for nothing. One that may be as
// usual between its sites counts as that.
func (r *reading) unusual(links []events.Link, nodes []events.Device, dear [][2]int) (others []policy.Link) {
	told := map[[2]int]bool{} // looked up, never ranged over
	for _, pair := range dear {
		told[pair], told[[2]int{pair[1], pair[0]}] = true, true
	}
	for _, link := range links {
		from, isFrom := r.index[link.From]
		to, isTo := r.index[link.To]
		if !isFrom || !isTo || from == to || link.BandwidthBytesPerSecond <= 0 || told[[2]int{from, to}] {
			continue
		}
		told[[2]int{from, to}] = true
		other, isUnusual := r.at(nodes[from].Site, nodes[to].Site)
		isApart := isUnusual && len(nodes) > mostApart // its sites would tell of it otherwise
		own, spread := r.read(link.Measurement), link.Spread(r.usual.Link("", ""))
		if r.scattered[[2]string{nodes[from].Site, nodes[to].Site}].isWide() {
			spread = 1
		}
		if r.differ(own, other, spread) {
			other, isUnusual = own, isApart || r.differ(own, r.anywhere(), spread)
			other.Unsure = isUnsure(link.Measurement)
		}
		if other.From, other.To = from, to; isUnusual {
			others = append(others, other)
		}
	}
	others = append(others, r.unmeasured(links, nodes, told)...)
	slices.SortFunc(others,
		func(a, b policy.Link) int { return cmp.Or(cmp.Compare(a.From, b.From), cmp.Compare(a.To, b.To)) })
	return others
}

// unmeasured returns the unusual links of those that were not told: of few nodes all, of many those whose other direction was told.
func (r *reading) unmeasured(links []events.Link, nodes []events.Device, told map[[2]int]bool) (others []policy.Link) {
	if len(r.usual.Between) == 0 {
		return nil
	}
	tell := func(from, to int) {
		link, isUnusual := r.at(nodes[from].Site, nodes[to].Site)
		if link.From, link.To = from, to; from != to && !told[[2]int{from, to}] && isUnusual {
			told[[2]int{from, to}] = true
			others = append(others, link)
		}
	}
	if len(nodes) > mostApart {
		for _, link := range links {
			from, isFrom := r.index[link.From]
			if to, isTo := r.index[link.To]; isFrom && isTo {
				tell(to, from)
			}
		}
		return others
	}
	for from := range nodes {
		for to := range nodes {
			tell(from, to)
		}
	}
	return others
}

// at returns what a link from one site to another is taken for: what is usual between them where that is unlike the usual link,
// and whether it is.
func (r *reading) at(from, to string) (link policy.Link, isUnusual bool) {
	link, known := r.bySites[[2]string{from, to}]
	if !known {
		between := r.usual.Link(from, to)
		if link = r.read(between); link.BytesPerSecond <= 0 || !r.differ(link, r.anywhere(), between.Spread(r.usual.Link("", ""))) {
			link = r.anywhere()
		} else {
			link.Unsure = isUnsure(between)
		}
		r.bySites[[2]string{from, to}] = link
	}
	return link, link != r.anywhere()
}

// read tells a link's figures, in two digits, in three where they are known that well, as of many links between two sites, and whole
// where they are exact. A latency that is off by so little that no monitor tells it is the usual one.
func (r *reading) read(measured events.Measurement) policy.Link {
	latency, rate := measured.RoundTripSeconds/2, measured.BandwidthBytesPerSecond
	if measured.IsExact() {
		return policy.Link{LatencySeconds: latency, BytesPerSecond: rate}
	}
	count := 2
	if measured.Off() < twoDigits {
		count = 3
	}
	link := policy.Link{LatencySeconds: digits(latency, count), BytesPerSecond: digits(rate, count)}
	if usual := r.network.LatencySeconds; math.Abs(latency-usual) <= untoldSeconds {
		link.LatencySeconds = usual
	}
	return link
}

// twoDigits is the share by which a figure in two digits may be off.
const twoDigits = 0.05

// isUnsure reports whether a link was measured once only.
func isUnsure(link events.Measurement) bool { return link.Off() >= events.MostUncertainty }

// untoldSeconds is a difference of latencies that the monitor does not tell.
const untoldSeconds = events.AssumedRoundTripSeconds / 4

func (r *reading) anywhere() policy.Link {
	return policy.Link{LatencySeconds: r.network.LatencySeconds, BytesPerSecond: r.network.BytesPerSecond}
}

// differ reports whether one of two links is more than spread times as good as the other.
func (r *reading) differ(a, b policy.Link, spread float64) bool {
	transfer := func(link policy.Link) float64 {
		return link.LatencySeconds + float64(r.network.ActivationBytes)/link.BytesPerSecond
	}
	differ := func(a, b float64) bool { return a > spread*b || b > spread*a }
	return differ(transfer(a), transfer(b)) || differ(a.BytesPerSecond, b.BytesPerSecond)
}

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
