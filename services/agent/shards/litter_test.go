package shards

import (
	"runtime"
	"runtime/debug"
	"testing"
)

// Nothing else collects meanwhile: the collector does not run by itself.
func TestWhatGivingAndTakingLeaveBehindIsCollected(t *testing.T) {
	want := cut(content(52, 16*testPart))
	store := serve(t, StoreConfig{Bucket: "shards-n1"})
	want.offerTo(store)
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	before := collections()
	fetch(t, transferFrom(t, store.source()), want)
	if after := collections(); after < before+2 {
		t.Errorf("%d collections, expected some of %d MiB of litter", after-before, (copiesOfPut+1)*len(want.data)>>20)
	}
}

func collections() uint32 {
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return stats.NumGC
}
