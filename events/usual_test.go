package events

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

func link(from, to string, rate float64) Link {
	return Link{Measurement: Measurement{From: from, To: to, RoundTripSeconds: 1e-3, BandwidthBytesPerSecond: rate}}
}

// Within site a links carry 1e8 bytes a second, up to site b 1e6 and down 5e6, and what is known of site c is as usual.
func measuredAtThreeSites() ([]Link, map[string]string) {
	site := map[string]string{"a1": "a", "a2": "a", "a3": "a", "b1": "b", "b2": "b", "b3": "b", "c1": "c"}
	return []Link{
		link("a1", "a2", 1e8), link("a2", "a1", 1e8), link("a1", "a3", 1.1e8), link("a3", "a2", 0.9e8), link("a2", "a3", 1e8),
		link("a1", "b1", 1e6), link("a2", "b2", 1.1e6), link("a2", "b3", 9e9), link("a1", "b3", 0.9e6), link("a3", "b1", 1e6),
		link("b1", "a1", 5e6),
		link("a1", "c1", 1.2e8), link("b1", "c1", 0), link("nobody", "b1", 1e8), link("nobody", "a2", 1e8),
	}, site
}

func TestWhatALinkIsTakenForThatNobodyMeasuredFollowsFromTheSitesOfItsEnds(t *testing.T) {
	usual := UsualOf(measuredAtThreeSites())
	for _, way := range []struct {
		from, to string
		want     float64
	}{
		{"a", "b", 1e6}, {"b", "a", 5e6}, {"a", "a", 1e8}, {"b", "b", 1e8}, {"a", "c", 1e8}, {"b", "c", 1e8},
		{"", "b", 1e8}, {"", "", 1e8},
	} {
		if got := usual.Link(way.from, way.to).BandwidthBytesPerSecond; got != way.want {
			t.Errorf("from %q to %q: %v, want %v", way.from, way.to, got, way.want)
		}
	}
	if len(usual.Between) != 2 {
		t.Errorf("%+v are told, want those between a and b", usual.Between)
	}
}

func TestALinkThatIsAsSlowAsOthersToItsSiteIsUsual(t *testing.T) {
	links, site := measuredAtThreeSites()
	usual := UsualOf(links, site)
	var others []string
	for _, link := range links {
		if link.BandwidthBytesPerSecond > 0 && !usual.StandsFor(link.Measurement, site) {
			others = append(others, link.From+" "+link.To)
		}
	}
	if want := []string{"a2 b3"}; !slices.Equal(others, want) {
		t.Errorf("%v are not usual, want %v", others, want)
	}
}

func TestLinksThereAndBackThatAreAlikeAreTakenForTheSame(t *testing.T) {
	site := map[string]string{"a1": "a", "b1": "b"}
	links := []Link{link("a1", "b1", 1e6), link("b1", "a1", 1.3e6)}
	for i := range 5 {
		links = append(links, link("x", fmt.Sprint("y", i), 1e8))
	}
	usual := UsualOf(links, site)
	if there, back := usual.Link("a", "b"), usual.Link("b", "a"); there.BandwidthBytesPerSecond != back.BandwidthBytesPerSecond {
		t.Errorf("%+v there, and %+v back", there, back)
	}
}

func TestOfLinksThatNobodyMeasuredNothingIsUsual(t *testing.T) {
	if usual := UsualOf([]Link{link("a1", "b1", 0)}, nil); usual != nil {
		t.Errorf("%+v", usual)
	}
}

func TestSitesThatAreNotInOrderAreRefusedByName(t *testing.T) {
	var c check
	c.usual(&Usual{BandwidthBytesPerSecond: 1, Between: []Measurement{
		{From: "b", To: "a", BandwidthBytesPerSecond: 1}, {From: "a", To: "b", BandwidthBytesPerSecond: 1},
	}})
	if c.err == nil || !strings.Contains(c.err.Error(), `field "usual.between[1]": expected sites in the order`) {
		t.Errorf("got %v", c.err)
	}
}

func TestAStatedLinkYieldsToWhatIsKnownBetweenTwoSitesAndNotWithinOne(t *testing.T) {
	links, site := measuredAtThreeSites()
	links = append(links, link("b1", "b2", 1e6))
	usual := Usual{RoundTripSeconds: 1e-3, BandwidthBytesPerSecond: 1e8, Uncertainty: Exact}.WithSites(links, site)
	for _, way := range []struct {
		from, to string
		want     float64
	}{
		{"a", "b", 1e6}, {"b", "a", 5e6}, {"a", "a", 1e8}, {"b", "b", 1e8}, {"a", "c", 1e8}, {"b", "c", 1e8}, {"", "b", 1e8},
	} {
		if got := usual.Link(way.from, way.to).BandwidthBytesPerSecond; got != way.want {
			t.Errorf("from %q to %q: %v, want %v", way.from, way.to, got, way.want)
		}
	}
}
