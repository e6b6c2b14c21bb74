package main

import (
	"math"
	"strings"
	"testing"

	"github.com/reknit/reknit/services/agent/shards"
	"github.com/reknit/reknit/tests/links"
)

// sample is a transfer of which nothing is to be said.
func sample() outcome {
	return outcome{
		name: "sample", seconds: 3.1, bound: 2.8, gap: 0.1, twice: 1 << 20, digest: "sha256:right",
		came: state.Bytes,
	}
}

func TestWhatWentTooFarIsNamed(t *testing.T) {
	bounds := limits{twice: 1 << 20, mostOfCorrupt: 1}
	for says, spoil := range map[string]func(*outcome){
		"loaded sha256:wrong":      func(o *outcome) { o.digest = "sha256:wrong" },
		"none came for 2.00 s":     func(o *outcome) { o.gap = 2 },
		"it took 4.51 s":           func(o *outcome) { o.seconds = 4.51 },
		"1048577 did":              func(o *outcome) { o.twice++ },
		"got 2":                    func(o *outcome) { o.corrupt = 2 },
		"at most 0 bytes are lost": func(o *outcome) { o.lost = 1 },
		"they carried 1572865":     func(o *outcome) { o.beyond = 1<<20 + headers + 1 },
		"75497471 did":             func(o *outcome) { o.came-- },
		"76546049 did":             func(o *outcome) { o.came += o.twice + 1 },
	} {
		spoilt := sample()
		if err := spoilt.judge(bounds, "sha256:right"); err != nil {
			t.Errorf("nothing is spoilt: %v", err)
		}
		spoil(&spoilt)
		if err := spoilt.judge(bounds, "sha256:right"); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("got %v, expected %q", err, says)
		}
	}
}

func TestCorruptPartsMayComeAgain(t *testing.T) {
	spoilt := sample()
	spoilt.corrupt, spoilt.came = 1, spoilt.came+spoilt.twice+partBytes
	spoilt.seconds += 0.4 // one of nine parts in 2.8 s
	if err := spoilt.judge(limits{twice: 1 << 20, mostOfCorrupt: 1}, "sha256:right"); err != nil {
		t.Error(err)
	}
}

func TestOnlyLessThanAChunkIsWhatTheIssueAsksFor(t *testing.T) {
	if !(outcome{twice: 512<<10 - 1}).asIssued() || (outcome{twice: 512 << 10}).asIssued() {
		t.Error("a chunk has 512 KiB")
	}
}

func TestLinksAllowWhatTheirPayloadsDoTogether(t *testing.T) {
	links := []links.Shape{{MegabitsPerSecond: 100}, {MegabitsPerSecond: 10}, {}}
	if got := allow(110e6/8*1448, links); math.Abs(got-1500) > 1e-6 {
		t.Errorf("%v s, want 1500", got)
	}
}

func TestTransfersAreAddedUp(t *testing.T) {
	var sum outcome
	sum.seconds, sum.twice = 1, 2
	sources := []shards.SourceProgress{{Bytes: 5, Corrupt: 1}, {Bytes: 6, Corrupt: 2}}
	sum.add(shards.Progress{Seconds: 3, Duplicate: 4, Sources: sources})
	if sum.seconds != 4 || sum.twice != 6 || sum.came != 11 || sum.corrupt != 3 {
		t.Errorf("%+v", sum)
	}
}
