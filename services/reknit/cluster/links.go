package cluster

import (
	"fmt"
	"slices"

	"github.com/reknit/reknit/events"
)

// EveryLink returns what is known of each pair of nodes in each direction: as measured, else the default where there is
// one. It fails with a Fault where a link has not two different nodes, or stands there twice.
func (f *File) EveryLink(d *Document) ([]events.Link, error) {
	if f.Links == nil {
		return nil, nil
	}
	measured, err := f.measured(d)
	if err != nil {
		return nil, err
	}
	cut, err := f.disconnected(d)
	if err != nil {
		return nil, err
	}
	var links []events.Link
	for _, from := range f.Nodes {
		for _, to := range f.Nodes {
			quality, known := measured[[2]string{from.Node, to.Node}]
			if usual := f.Links.Default; !known && usual != nil {
				quality, known = *usual, true
			}
			disconnected := cut[events.PairOf(from.Node, to.Node)]
			if from.Node == to.Node || !known && !disconnected {
				continue
			}
			links = append(links, events.Link{Disconnected: disconnected, Measurement: events.Measurement{
				From: from.Node, To: to.Node,
				RoundTripSeconds: float64(quality.RoundTrip), BandwidthBytesPerSecond: float64(quality.Bandwidth),
			}})
		}
	}
	return links, nil
}

// measured returns the file's measurements by sender and receiver.
func (f *File) measured(d *Document) (map[[2]string]Quality, error) {
	measured := map[[2]string]Quality{}
	for i, link := range f.Links.Measured {
		at := fmt.Sprintf("links.measured[%d]", i)
		ends, directions := []string{link.From, link.To}, 1
		switch oneWay := link.From != "" || link.To != ""; {
		case oneWay == (link.Between != nil):
			return nil, d.Fault(at, "between two nodes, or from one to another", "neither or both")
		case !oneWay:
			ends, directions = link.Between, 2
		}
		if err := f.ends(d, at, ends); err != nil {
			return nil, err
		}
		for direction := range directions {
			key := [2]string{ends[direction], ends[1-direction]}
			if _, twice := measured[key]; twice {
				return nil, d.Fault(at, "each direction once", fmt.Sprintf("%s to %s again", key[0], key[1]))
			}
			measured[key] = Quality{link.RoundTrip, link.Bandwidth}
		}
	}
	return measured, nil
}

func (f *File) disconnected(d *Document) (map[events.Pair]bool, error) {
	cut := map[events.Pair]bool{}
	for i, pair := range f.Links.Disconnected {
		if err := f.ends(d, fmt.Sprintf("links.disconnected[%d]", i), pair); err != nil {
			return nil, err
		}
		cut[events.PairOf(pair[0], pair[1])] = true
	}
	return cut, nil
}

// ends checks that a link has two, which are nodes of the file.
func (f *File) ends(d *Document, field string, ends []string) error {
	if len(ends) != 2 || ends[0] == ends[1] || slices.Contains(ends, "") {
		return d.Fault(field, "two different nodes", fmt.Sprintf("%q", ends))
	}
	for _, end := range ends {
		if err := f.Known(d, field, end); err != nil {
			return err
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
