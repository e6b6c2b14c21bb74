package cluster

import (
	"fmt"
	"testing"

	"github.com/reknit/reknit/events"
)

func TestQuantitiesCarryTheirUnits(t *testing.T) {
	for text, want := range map[string]float64{"1B": 1, "1kB": 1000, "1.5 MB": 1.5e6, "2GiB": 2 << 30, "1TB": 1e12} {
		var got Size
		if err := got.UnmarshalText([]byte(text)); err != nil || float64(got) != want {
			t.Errorf("%s: %v bytes, error %v; expected %v", text, got, err, want)
		}
	}
	for text, want := range map[string]float64{"8kbit/s": 1000, "1Gbit/s": 125e6, "3 MB/s": 3e6, "1MiB/s": 1 << 20} {
		var got Rate
		if err := got.UnmarshalText([]byte(text)); err != nil || float64(got) != want {
			t.Errorf("%s: %v bytes a second, error %v; expected %v", text, got, err, want)
		}
	}
}

const threeNodes = `cluster: three
nodes:
  - {node: a, memory: 8GiB, speed: 1.5}
  - {node: b, memory: 8GiB}
  - {node: c, memory: 8GiB}
links:
  default: {roundTrip: 1ms, bandwidth: 1Gbit/s}
  measured:
    - {between: [a, b], roundTrip: 2ms, bandwidth: 2Gbit/s}
    - {from: b, to: c, roundTrip: 2ms, bandwidth: 2Gbit/s, uncertainty: 0.2}
  disconnected: [[a, c]]
model: {}
globalBatch: 1
microBatch: 1
timeBetweenFailures: 1h
`

func TestALinkHasItsOwnQualityInEachDirection(t *testing.T) {
	var f File
	d, err := Decode("cluster.yaml", []byte(threeNodes), &f)
	if err != nil {
		t.Fatal(err)
	}
	links, usual, err := f.KnownLinks(d)
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for _, link := range links {
		got[link.From+link.To] = fmt.Sprint(link.BandwidthBytesPerSecond/125e6, " ", link.Disconnected, " ", link.Uncertainty)
	}
	for pair, want := range map[string]string{
		"ab": "2 false 1e-06", "ba": "2 false 1e-06", "bc": "2 false 0.2", "ac": "0 true 0", "ca": "0 true 0",
	} {
		if got[pair] != want {
			t.Errorf("%s: %q, expected %q (Gbit/s, disconnected)", pair, got[pair], want)
		}
	}
	if len(got) != 5 || usual == nil || usual.BandwidthBytesPerSecond != 125e6 || usual.Uncertainty != events.Exact {
		t.Errorf("%v and otherwise %+v, expected 5 links and the default for c to b", got, usual)
	}
}
