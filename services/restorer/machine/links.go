package machine

import (
	"maps"
	"slices"

	"github.com/reknit/reknit/events"
)

// relayedShare is what a pair without a direct link has of its bandwidth: it goes through the hub, where both ways
// share one server. A tenth is a guess on the safe side, and only serves to prefer other sources.
const relayedShare = 0.1

// usual is what links are taken for that the request does not list.
func (r *restoration) usual() *events.Usual {
	if r.Usual != nil {
		return r.Usual
	}
	return events.AssumedUsual()
}

// sites returns where those stand who give and who receive.
func (r *restoration) sites() map[string]string {
	sites := map[string]string{}
	if r.Current != nil {
		sites = events.SitesOf(r.Current.Nodes)
	}
	maps.Copy(sites, events.SitesOf(r.plan.Nodes))
	return sites
}

// bandwidths returns what each link carries in bytes per second, from sender to receiver, as measured. O(names^2).
func (r *restoration) bandwidths(names []string) [][]float64 {
	usual, site, links := r.usual(), r.sites(), make([][]float64, len(names))
	row, at := slices.Repeat([]float64{usual.BandwidthBytesPerSecond}, len(names)), map[string][]int{}
	for i, name := range names {
		links[i], at[site[name]] = slices.Clone(row), append(at[site[name]], i)
	}
	for _, between := range usual.Between {
		for _, from := range at[between.From] {
			for _, to := range at[between.To] {
				links[from][to] = between.BandwidthBytesPerSecond
			}
		}
	}
	for i := range links {
		links[i][i] = 0
	}
	for link, rate := range r.unusual(names) {
		links[link.from][link.to] = rate
	}
	return links
}

// starts returns when the first byte can come over each link, from sender to receiver: a round trip after it is asked for, as
// measured (t_prop of Chaos, there and back), and what its giver is at until then (tau_sync). O(names^2).
func (r *restoration) starts(names []string) [][]float64 {
	usual, site, starts := r.usual(), r.sites(), make([][]float64, len(names))
	row, at := slices.Repeat([]float64{usual.RoundTripSeconds}, len(names)), map[string][]int{}
	index := make(map[string]int, len(names))
	for i, name := range names {
		starts[i], index[name], at[site[name]] = slices.Clone(row), i, append(at[site[name]], i)
	}
	for _, between := range usual.Between {
		for _, from := range at[between.From] {
			for _, to := range at[between.To] {
				starts[from][to] = between.RoundTripSeconds
			}
		}
	}
	for _, link := range r.Links {
		from, sends := index[link.From]
		if to, receives := index[link.To]; sends && receives {
			starts[from][to] = link.RoundTripSeconds
		}
	}
	for from, name := range names {
		for to := range starts[from] {
			starts[from][to] += r.late[name]
		}
	}
	return starts
}

// unusual returns the bytes per second of the links among names that the request lists, or of which it says that they go
// through the hub.
func (r *restoration) unusual(names []string) map[linkOf]float64 {
	index := make(map[string]int, len(names))
	for i, name := range names {
		index[name] = i
	}
	between := func(from, to string) (link linkOf, known bool) {
		i, sends := index[from]
		j, receives := index[to]
		return linkOf{i, j}, sends && receives && i != j
	}
	rates := map[linkOf]float64{}
	for _, told := range r.Links {
		if link, known := between(told.From, told.To); known && told.BandwidthBytesPerSecond > 0 {
			rates[link] = told.BandwidthBytesPerSecond
		}
	}
	site, relayed := r.sites(), map[events.Pair]bool{}
	for _, pair := range r.Unreachable {
		link, known := between(pair.A, pair.B)
		if !known || relayed[pair] {
			continue
		}
		relayed[pair] = true
		for _, way := range []linkOf{link, {link.to, link.from}} {
			rate, told := rates[way]
			if !told {
				rate = r.usual().Link(site[names[way.from]], site[names[way.to]]).BandwidthBytesPerSecond
			}
			rates[way] = rate * relayedShare
		}
	}
	return rates
}

// way is a direct link in one direction.
type way struct{ from, to string }

// measured returns the bytes a second of a link as the request tells them, or as usual where it does not list the link; zero of
// one that is not used directly, and where nothing is known.
func (r *restoration) measured() func(way) float64 {
	rates := map[way]float64{}
	for _, link := range r.Links {
		rates[way{link.From, link.To}] = link.BandwidthBytesPerSecond
	}
	for _, pair := range r.Unreachable {
		rates[way{pair.A, pair.B}], rates[way{pair.B, pair.A}] = 0, 0
	}
	site := r.sites()
	return func(of way) float64 {
		rate, told := rates[of]
		if !told && r.Usual != nil {
			return r.Usual.Link(site[of.from], site[of.to]).BandwidthBytesPerSecond
		}
		return rate
	}
}

// roundTrips returns the longest measured round trip of each node, at least the assumed one.
func (r *restoration) roundTrips(names []string) []float64 {
	longest := map[string]float64{}
	for _, link := range r.Links {
		longest[link.From] = max(longest[link.From], link.RoundTripSeconds)
		longest[link.To] = max(longest[link.To], link.RoundTripSeconds)
	}
	seconds := make([]float64, len(names))
	for i, name := range names {
		seconds[i] = max(longest[name], r.usual().RoundTripSeconds, events.AssumedRoundTripSeconds)
	}
	return seconds
}
