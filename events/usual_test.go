package events

import (
	"testing"
)

func link(from, to string, rate float64) Link {
	return Link{Measurement: Measurement{From: from, To: to, RoundTripSeconds: 1e-3, BandwidthBytesPerSecond: rate}}
}

func TestWhatALinkIsTakenForThatNobodyMeasuredFollowsFromTheSitesOfItsEnds(t *testing.T) {
	site := map[string]string{"a1": "a", "a2": "a", "b1": "b", "b2": "b", "b3": "b", "c1": "c"}
	links := []Link{
		link("a1", "b1", 1e6), link("a1", "b2", 2e6), link("a2", "b3", 9e9), // up, one of which is odd
		link("b1", "a1", 5e6),                        // down
		link("a1", "a2", 1e3), link("lost", "b1", 0), // within a site, and of nobody knows where
		link("a1", "c1", 0), // never measured
	}
	anywhere := Usual{RoundTripSeconds: 1e-3, BandwidthBytesPerSecond: 1e8}
	usual := UsualLinksOf(links, anywhere, site)
	for _, way := range []struct {
		from, to string
		want     float64
	}{{"a", "b", 2e6}, {"b", "a", 5e6}, {"a", "a", 1e8}, {"a", "c", 1e8}, {"c", "b", 1e8}, {"", "b", 1e8}, {"", "", 1e8}} {
		if got := usual.Between(way.from, way.to).BandwidthBytesPerSecond; got != way.want {
			t.Errorf("from %q to %q: %v, want %v", way.from, way.to, got, way.want)
		}
	}
}
