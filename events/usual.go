package events

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
)

// Usual is what links are like in the median of those that are known: all of them, and those from one site to another, or
// within one, where that differs. Nodes of many measure few of their links, and the others are taken for it.
type Usual struct {
	RoundTripSeconds        float64 `json:"roundTripSeconds" is:"min=0,max=3600"`
	BandwidthBytesPerSecond float64 `json:"bandwidthBytesPerSecond" is:"min=1,max=1e18"`
	// Uncertainty is the share by which either figure may be off where somebody states them; left out: by less than any link.
	Uncertainty float64       `json:"uncertainty,omitempty" is:"min=0,max=0.5"`
	Between     []Measurement `json:"between,omitempty"` // from a site to a site, in their order
}

// AssumedUsual is what links are taken for where nothing is known of any.
func AssumedUsual() *Usual {
	return &Usual{RoundTripSeconds: AssumedRoundTripSeconds, BandwidthBytesPerSecond: AssumedBytesPerSecond}
}

// UsualOf returns the usual link, in three digits: what one of many measurements changes is less. Links there and back are told as the same
// if they are alike. Site is by node; a node that is not there stands anywhere. It is nil where no link was measured. O(links * log links).
func UsualOf(links []Link, site map[string]string) *Usual {
	all, between := &figures{}, map[sites]*figures{}
	for _, link := range links {
		if link.BandwidthBytesPerSecond <= 0 {
			continue
		}
		all.add(link.Measurement)
		sites{site[link.From], site[link.To]}.note(between, link.Measurement)
	}
	if len(all.rates) == 0 {
		return nil
	}
	median := all.median(sites{})
	usual := &Usual{RoundTripSeconds: median.RoundTripSeconds, BandwidthBytesPerSecond: median.BandwidthBytesPerSecond}
	usual.Between = unlike(between, median)
	return usual
}

// WithSites is the usual link as somebody states it, with the links between two sites that are known to differ from it. A link that is
// known within a site says nothing of the other links there. O(links * log links).
func (u Usual) WithSites(links []Link, site map[string]string) *Usual {
	between := map[sites]*figures{}
	for _, link := range links {
		if ends := (sites{site[link.From], site[link.To]}); link.BandwidthBytesPerSecond > 0 && ends.from != ends.to {
			ends.note(between, link.Measurement)
		}
	}
	u.Between = unlike(between, u.Link("", ""))
	return &u
}

// unlike is the median links from one site to another, or within one, that are not like a usual one, in the order of the sites.
func unlike(between map[sites]*figures, usual Measurement) (list []Measurement) {
	told := map[sites]Measurement{}
	for _, ends := range slices.SortedFunc(maps.Keys(between), sites.compare) {
		there := between[ends].median(ends)
		if back, known := told[sites{ends.to, ends.from}]; known && back.alike(there) {
			there.RoundTripSeconds, there.BandwidthBytesPerSecond = back.RoundTripSeconds, back.BandwidthBytesPerSecond
		}
		told[ends] = there
		if !there.alike(usual) {
			list = append(list, there)
		}
	}
	return list
}

// Link is what the link from a node at one site to a node at another, or the same, is taken for. O(log sites).
func (u *Usual) Link(from, to string) Measurement {
	at, told := slices.BinarySearchFunc(u.Between, sites{from, to},
		func(between Measurement, ends sites) int { return sites{between.From, between.To}.compare(ends) })
	if told {
		return u.Between[at]
	}
	return Measurement{
		From: from, To: to, RoundTripSeconds: u.RoundTripSeconds, BandwidthBytesPerSecond: u.BandwidthBytesPerSecond,
		Uncertainty: u.Uncertainty,
	}
}

// StandsFor reports whether the link between two nodes, which was measured so, is as usual where they stand: neither figure
// differs from the usual one by more than measurements of one link may.
func (u *Usual) StandsFor(measured Measurement, site map[string]string) bool {
	return measured.alike(u.Link(site[measured.From], site[measured.To]))
}

// alike reports whether a usual link may be as good as this one. Round trips below a millisecond are of one machine or one room,
// and those that were measured differ by how busy it is.
func (m *Measurement) alike(other Measurement) bool {
	spread, least := m.Spread(other), AssumedRoundTripSeconds
	if m.IsExact() {
		least = 0
	}
	within := func(a, b float64) bool { return a <= spread*b && b <= spread*a }
	return within(m.BandwidthBytesPerSecond, other.BandwidthBytesPerSecond) &&
		within(max(m.RoundTripSeconds, least), max(other.RoundTripSeconds, least))
}

// sites are those of a link's ends.
type sites struct{ from, to string }

func (s sites) compare(other sites) int {
	return cmp.Or(cmp.Compare(s.from, other.from), cmp.Compare(s.to, other.to))
}

// note adds what was measured of a link to what is known between its sites. A node that stands anywhere tells nothing of any.
func (s sites) note(between map[sites]*figures, measured Measurement) {
	if s.from == "" || s.to == "" {
		return
	}
	if between[s] == nil {
		between[s] = &figures{}
	}
	between[s].add(measured)
}

// figures are those of links that were measured.
type figures struct{ roundTrips, rates, off []float64 }

func (f *figures) add(measured Measurement) {
	f.roundTrips = append(f.roundTrips, measured.RoundTripSeconds)
	f.rates = append(f.rates, measured.BandwidthBytesPerSecond)
	f.off = append(f.off, measured.Off())
}

// medianOff is how many times the standard error of the median of normal figures is that of their mean: the root of pi/2.
const medianOff = 1.2533

// leastPooled is how exactly a median of measurements is told.
const leastPooled = 0.01

// median of figures of like links, which are off independently of each other: the more there are, the less it is off.
func (f *figures) median(ends sites) Measurement {
	slices.Sort(f.roundTrips)
	slices.Sort(f.rates)
	slices.Sort(f.off)
	middle := len(f.rates) / 2
	median := Measurement{
		From: ends.from, To: ends.to, RoundTripSeconds: f.roundTrips[middle], BandwidthBytesPerSecond: f.rates[middle],
		Uncertainty: min(MostUncertainty, max(min(f.off[middle], leastPooled), f.off[middle]*medianOff/math.Sqrt(float64(len(f.rates))))),
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
