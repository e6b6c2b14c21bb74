package cluster

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/reknit/reknit/events"
)

// KnownLinks returns the links that the file tells of, in each direction, and what the file takes all others for; nil where it
// does not say. A default yields to what links between two sites are told to be like. It is written down link by link only where
// it stands for less than half of them: O(links of the file), and not O(nodes^2). It fails with a Fault where a link has not two
// different nodes, or stands there twice.
func (f *File) KnownLinks(d *Document) (links []events.Link, usual *events.Usual, err error) {
	if f.Links == nil {
		return nil, nil, nil
	}
	known := make(map[string]bool, len(f.Nodes))
	for _, node := range f.Nodes {
		known[node.Node] = true
	}
	measured, err := f.measured(d, known)
	if err != nil {
		return nil, nil, err
	}
	cut, err := f.disconnected(d, known, measured)
	if err != nil {
		return nil, nil, err
	}
	if common := f.Links.Default; common != nil {
		if err := check(d, "links.default", common.Uncertainty); err != nil {
			return nil, nil, err
		}
		usual = common.usual().WithSites(joined(measured, nil), f.sites())
		if 2*len(measured) > len(f.Nodes)*(len(f.Nodes)-1) {
			measured, usual = f.withUsual(measured, usual), nil
		}
	}
	return joined(measured, cut), usual, nil
}

// way is a direction of a link.
type way struct{ from, to string }

// joined is the links that were measured and those that are cut, in the order of their ends.
func joined(measured map[way]Quality, cut map[events.Pair]bool) []events.Link {
	var links []events.Link
	for ends, quality := range measured {
		links = append(links, events.Link{
			Disconnected: cut[events.PairOf(ends.from, ends.to)], Measurement: quality.measurement(ends), // a default may be written down
		})
	}
	for pair := range cut {
		for _, ends := range []way{{pair.A, pair.B}, {pair.B, pair.A}} {
			if _, listed := measured[ends]; !listed {
				unmeasured := events.Measurement{From: ends.from, To: ends.to}
				links = append(links, events.Link{Disconnected: true, Measurement: unmeasured})
			}
		}
	}
	slices.SortFunc(links, func(a, b events.Link) int {
		return cmp.Or(cmp.Compare(a.From, b.From), cmp.Compare(a.To, b.To))
	})
	return links
}

func (q Quality) measurement(ends way) events.Measurement {
	return events.Measurement{
		From: ends.from, To: ends.to, RoundTripSeconds: float64(q.RoundTrip), BandwidthBytesPerSecond: float64(q.Bandwidth),
		Uncertainty: q.off(),
	}
}

func (q Quality) usual() *events.Usual {
	return &events.Usual{
		RoundTripSeconds: float64(q.RoundTrip), BandwidthBytesPerSecond: float64(q.Bandwidth), Uncertainty: q.off(),
	}
}

// off is the share by which the figures may be off: what a file states it means, unless it says otherwise.
func (q Quality) off() float64 {
	if q.Uncertainty == nil {
		return events.Exact
	}
	return max(*q.Uncertainty, events.Exact)
}

// withUsual is the quality of each direction, as measured or else as usual where its ends stand. O(nodes^2 log sites).
func (f *File) withUsual(measured map[way]Quality, usual *events.Usual) map[way]Quality {
	all, site := make(map[way]Quality, len(f.Nodes)*(len(f.Nodes)-1)), f.sites()
	for _, from := range f.Nodes {
		for _, to := range f.Nodes {
			ends := way{from.Node, to.Node}
			quality, known := measured[ends]
			if !known {
				link := usual.Link(site[from.Node], site[to.Node])
				quality = Quality{Span(link.RoundTripSeconds), Rate(link.BandwidthBytesPerSecond), &link.Uncertainty}
			}
			if from.Node != to.Node {
				all[ends] = quality
			}
		}
	}
	return all
}

// sites is where each node stands that says so.
func (f *File) sites() map[string]string {
	site := make(map[string]string, len(f.Nodes))
	for _, node := range f.Nodes {
		site[node.Node] = node.Site
	}
	return site
}

// measured returns the file's measurements by direction.
func (f *File) measured(d *Document, known map[string]bool) (map[way]Quality, error) {
	measured := map[way]Quality{}
	for i, link := range f.Links.Measured {
		at := fmt.Sprintf("links.measured[%d]", i)
		ends, directions := []string{link.From, link.To}, 1
		switch oneWay := link.From != "" || link.To != ""; {
		case oneWay == (link.Between != nil):
			return nil, d.Fault(at, "between two nodes, or from one to another", "neither or both")
		case !oneWay:
			ends, directions = link.Between, 2
		}
		if err := cmp.Or(checkEnds(d, known, at, ends), check(d, at, link.Uncertainty)); err != nil {
			return nil, err
		}
		for direction := range directions {
			key := way{ends[direction], ends[1-direction]}
			if _, twice := measured[key]; twice {
				return nil, d.Fault(at, "each direction once", fmt.Sprintf("%s to %s again", key.from, key.to))
			}
			measured[key] = Quality{link.RoundTrip, link.Bandwidth, link.Uncertainty}
		}
	}
	return measured, nil
}

// check checks the uncertainty of a link.
func check(d *Document, at string, uncertainty *float64) error {
	if uncertainty != nil && (*uncertainty < 0 || *uncertainty > events.MostUncertainty) {
		return d.Fault(at+".uncertainty", fmt.Sprintf("a share of 0 to %g", events.MostUncertainty), *uncertainty)
	}
	return nil
}

// disconnected returns the file's pairs without a direct link, which are not measured as well.
func (f *File) disconnected(d *Document, known map[string]bool, measured map[way]Quality) (map[events.Pair]bool, error) {
	cut := map[events.Pair]bool{}
	for i, pair := range f.Links.Disconnected {
		at := fmt.Sprintf("links.disconnected[%d]", i)
		if err := checkEnds(d, known, at, pair); err != nil {
			return nil, err
		}
		_, there := measured[way{pair[0], pair[1]}]
		_, back := measured[way{pair[1], pair[0]}]
		if there || back {
			return nil, d.Fault(at, "a pair that links.measured does not have", fmt.Sprintf("%q", pair))
		}
		cut[events.PairOf(pair[0], pair[1])] = true
	}
	return cut, nil
}

// checkEnds checks that a link has two, which are nodes of the file.
func checkEnds(d *Document, known map[string]bool, field string, ends []string) error {
	if len(ends) != 2 || ends[0] == ends[1] || slices.Contains(ends, "") {
		return d.Fault(field, "two different nodes", fmt.Sprintf("%q", ends))
	}
	for _, end := range ends {
		if !known[end] {
			return d.Fault(field, "one of the cluster's nodes", fmt.Sprintf("%.80q", end))
		}
	}
	return nil
}

// Unreachable returns the pairs of nodes that must not, or cannot, use their direct link.
func Unreachable(links []events.Link) []events.Pair {
	var pairs []events.Pair
	for _, link := range links {
		if (link.Disconnected || link.Lost) && link.From < link.To {
			pairs = append(pairs, events.PairOf(link.From, link.To))
		}
	}
	return pairs
}
