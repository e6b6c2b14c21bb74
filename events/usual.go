package events

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
)

// Usual is what links are like in the median of those that are known: all of them, and those from one site to another, or
// within one, where that differs. Nodes of many measure few of their links, and the others are taken for it.
type Usual struct {
	RoundTripSeconds        float64       `json:"roundTripSeconds" is:"min=0"`
	BandwidthBytesPerSecond float64       `json:"bandwidthBytesPerSecond" is:"min=1"`
	Between                 []Measurement `json:"between,omitempty"` // from a site to a site, in their order
}

// AssumedUsual is what links are taken for where nothing is known of any.
func AssumedUsual() *Usual {
	return &Usual{RoundTripSeconds: AssumedRoundTripSeconds, BandwidthBytesPerSecond: AssumedBytesPerSecond}
}

// UsualOf returns the usual link, in three digits: what one of many measurements changes is less. Where links there and back
// are alike they are told as the same. Site is by node; a node that is not there stands anywhere. It is nil where no link was
// measured. O(links * log links).
func UsualOf(links []Link, site map[string]string) *Usual {
	all, between := &figures{}, map[sites]*figures{}
	for _, link := range links {
		if link.BandwidthBytesPerSecond <= 0 {
			continue
		}
		all.add(link.Measurement)
		if ends := (sites{site[link.From], site[link.To]}); ends.from != "" && ends.to != "" {
			if between[ends] == nil {
				between[ends] = &figures{}
			}
			between[ends].add(link.Measurement)
		}
	}
	if len(all.rates) == 0 {
		return nil
	}
	median := all.median(sites{})
	usual := &Usual{RoundTripSeconds: median.RoundTripSeconds, BandwidthBytesPerSecond: median.BandwidthBytesPerSecond}
	told := map[sites]Measurement{}
	for _, ends := range slices.SortedFunc(maps.Keys(between), sites.compare) {
		there := between[ends].median(ends)
		if back, known := told[sites{ends.to, ends.from}]; known && alike(back, there) {
			there.RoundTripSeconds, there.BandwidthBytesPerSecond = back.RoundTripSeconds, back.BandwidthBytesPerSecond
		}
		told[ends] = there
		if !alike(there, median) {
			usual.Between = append(usual.Between, there)
		}
	}
	return usual
}

// Link is what the link from a node at one site to a node at another, or the same, is taken for. O(log sites).
func (u *Usual) Link(from, to string) Measurement {
	at, told := slices.BinarySearchFunc(u.Between, sites{from, to},
		func(between Measurement, ends sites) int { return sites{between.From, between.To}.compare(ends) })
	if told {
		return u.Between[at]
	}
	return Measurement{From: from, To: to, RoundTripSeconds: u.RoundTripSeconds, BandwidthBytesPerSecond: u.BandwidthBytesPerSecond}
}

// StandsFor reports whether the link between two nodes, which was measured so, is as usual where they stand: neither figure is
// more than twice or less than half of the usual one, as measurements of one link differ as much.
func (u *Usual) StandsFor(measured Measurement, site map[string]string) bool {
	return alike(u.Link(site[measured.From], site[measured.To]), measured)
}

// usualSpread is by how many times a figure may differ from the usual one and count as usual.
const usualSpread = 2

func alike(a, b Measurement) bool {
	within := func(a, b float64) bool { return a <= usualSpread*b && b <= usualSpread*a }
	return within(a.BandwidthBytesPerSecond, b.BandwidthBytesPerSecond) &&
		within(max(a.RoundTripSeconds, AssumedRoundTripSeconds), max(b.RoundTripSeconds, AssumedRoundTripSeconds))
}

// sites are those of a link's ends.
type sites struct{ from, to string }

func (s sites) compare(other sites) int {
	return cmp.Or(cmp.Compare(s.from, other.from), cmp.Compare(s.to, other.to))
}

// figures are those of links that were measured.
type figures struct{ roundTrips, rates []float64 }

func (f *figures) add(measured Measurement) {
	f.roundTrips = append(f.roundTrips, measured.RoundTripSeconds)
	f.rates = append(f.rates, measured.BandwidthBytesPerSecond)
}

func (f *figures) median(ends sites) Measurement {
	slices.Sort(f.roundTrips)
	slices.Sort(f.rates)
	median := Measurement{
		From: ends.from, To: ends.to,
		RoundTripSeconds: f.roundTrips[len(f.roundTrips)/2], BandwidthBytesPerSecond: f.rates[len(f.rates)/2],
	}
	return median.Rounded()
}

// SitesOf returns where members stand who say so.
func SitesOf(members []Member) map[string]string {
	site := map[string]string{}
	for _, member := range members {
		if member.Site != "" {
			site[member.Node] = member.Site
		}
	}
	return site
}

func (c *check) usual(usual *Usual) {
	if usual == nil {
		return
	}
	var before sites
	for i, between := range usual.Between {
		field := fmt.Sprintf("usual.between[%d]", i)
		c.rule("sites", between.BandwidthBytesPerSecond >= 1, field+".bandwidthBytesPerSecond", "1 or more", between.BandwidthBytesPerSecond)
		ends := sites{between.From, between.To}
		c.rule("sites", before.compare(ends) < 0, field, "sites in the order of from and to, each pair once", between.From+" "+between.To)
		before = ends
	}
}
