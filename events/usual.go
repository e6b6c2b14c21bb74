package events

import "slices"

// Usual is what a link is like in the median of those that are known. It stands for each of which neither figure is more than
// twice or less than half of it: measurements of one link differ as much.
type Usual struct {
	RoundTripSeconds        float64 `json:"roundTripSeconds"`
	BandwidthBytesPerSecond float64 `json:"bandwidthBytesPerSecond"`
}

// StandsFor reports whether a link that was measured so is as usual.
func (u *Usual) StandsFor(measured Measurement) bool {
	within := func(a, b float64) bool { return a <= 2*b && b <= 2*a }
	return within(measured.BandwidthBytesPerSecond, u.BandwidthBytesPerSecond) &&
		within(max(measured.RoundTripSeconds, AssumedRoundTripSeconds), max(u.RoundTripSeconds, AssumedRoundTripSeconds))
}

// Measurement is what a link is like that is exactly as usual.
func (u *Usual) Measurement() Measurement {
	return Measurement{RoundTripSeconds: u.RoundTripSeconds, BandwidthBytesPerSecond: u.BandwidthBytesPerSecond}
}

// UsualOf returns the median of the links that were measured, in three digits: what one of many measurements changes is less.
// There is none where no link was measured. O(links * log links).
func UsualOf(links []Link) (usual Usual, known bool) {
	var rates, roundTrips []float64
	for _, link := range links {
		if link.BandwidthBytesPerSecond > 0 {
			rates, roundTrips = append(rates, link.BandwidthBytesPerSecond), append(roundTrips, link.RoundTripSeconds)
		}
	}
	if len(rates) == 0 {
		return Usual{}, false
	}
	slices.Sort(rates)
	slices.Sort(roundTrips)
	return Usual{
		RoundTripSeconds:        threeDigits(roundTrips[len(roundTrips)/2]),
		BandwidthBytesPerSecond: threeDigits(rates[len(rates)/2]),
	}, true
}

// UsualLinks is what links are taken for that a request does not list: nodes of many do not measure all of theirs.
type UsualLinks struct {
	anywhere Usual
	between  map[sites]Usual
}

// sites are those of a link's ends.
type sites struct{ from, to string }

// UsualLinksOf reads what a request tells of links. From one site to another the usual link is the median of those that are
// listed from there to there; elsewhere it is as anywhere. Site is by node; a node that is not there stands anywhere.
// O(links * log links).
func UsualLinksOf(links []Link, anywhere Usual, site map[string]string) UsualLinks {
	usual := UsualLinks{anywhere: anywhere, between: map[sites]Usual{}}
	listed := map[sites][]Link{}
	for _, link := range links {
		if ends := (sites{site[link.From], site[link.To]}); ends.from != ends.to && ends.from != "" && ends.to != "" {
			listed[ends] = append(listed[ends], link)
		}
	}
	for ends, links := range listed {
		if median, known := UsualOf(links); known {
			usual.between[ends] = median
		}
	}
	return usual
}

// Between is what a link from one site to another, or within one, is taken for.
func (u UsualLinks) Between(from, to string) Usual {
	if usual, known := u.between[sites{from, to}]; known {
		return usual
	}
	return u.anywhere
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
