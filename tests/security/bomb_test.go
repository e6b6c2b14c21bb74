package security

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/reknit/reknit/events"
	"github.com/reknit/reknit/shared/bus"
)

// mostBombed is how much more memory four services and two trainers take together while they are bombed: what is in flight to the
// monitor, the negotiator and the restorer, and garbage that is not collected yet.
const mostBombed = 96 << 20

// TestAKitWithoutAPlaceTakesNobodysMemory has a kit that never joined say events whose data is 63 MiB of nothing in 64 KB, and some whose
// data is hundreds of thousands of tiny elements, of the two kinds that most hear. Before there were bounds one such
// event took the monitor 823 MB (a review by hand).
func TestAKitWithoutAPlaceTakesNobodysMemory(t *testing.T) {
	p := open(t)
	w := p.trainTwo(nil)
	w.await(events.PlanActivated)
	attacker := p.attacker("n3")
	payloads := p.connect("n3")
	var digests []string
	for _, bomb := range []string{
		`{"x":"` + strings.Repeat("0", 63<<20-8) + `"}`,
		`{"parts":[{}` + strings.Repeat(",{}", 600_000) + `],"holdings":[{}` + strings.Repeat(",{}", 600_000) + `]}`,
	} {
		digest := events.Digest([]byte(bomb))
		digests = append(digests, digest)
		if err := payloads.PutAs(w.ctx, events.PayloadBucket, digest, func() []byte { return packed(t, []byte(bomb)) }); err != nil {
			t.Fatal(err)
		}
	}
	peak := watchMemory(w.ctx) // the bombs as they are said are garbage by now: else the heap might grow to twice as much
	said := 0
	for i, digest := range digests {
		for _, kind := range []events.Kind{events.ShardOffered, events.Consented} {
			for n := range 8 {
				attacker.sayApart(kind, fmt.Sprintf("bomb-%d-%d-%.4s", i, n, kind), digest)
				said++
			}
		}
	}
	for range said {
		record := w.await(events.EventRefused)
		var refusal events.Quarantine
		if err := json.Unmarshal(record.Data, &refusal); err != nil || refusal.Reason != bus.Oversized {
			t.Errorf("%v, refused as %s: %s", err, refusal.Reason, refusal.Detail)
		}
	}
	if took := peak(); took > mostBombed {
		t.Errorf("%d bombs took %d MiB, expected at most %d", said, took>>20, mostBombed>>20)
	} else {
		t.Logf("%d bombs took %d MiB", said, took>>20)
	}
	_, step := w.steps()
	w.trainOn(step + 100)
}

func packed(t *testing.T, plain []byte) []byte {
	var text bytes.Buffer
	writer := gzip.NewWriter(&text)
	if _, err := writer.Write(plain); err != nil {
		t.Fatal(err)
	}
	if err := writer.Close(); err != nil {
		t.Fatal(err)
	}
	return text.Bytes()
}

// watchMemory looks at the heap again and again. The function that it returns ends that, and tells how much more there was than at first.
func watchMemory(ctx context.Context) (peak func() uint64) {
	heap := func() uint64 {
		var stats runtime.MemStats
		runtime.ReadMemStats(&stats)
		return stats.HeapInuse
	}
	runtime.GC()
	before, most := heap(), atomic.Uint64{}
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for ctx.Err() == nil {
			most.Store(max(most.Load(), heap()))
			time.Sleep(2 * time.Millisecond)
		}
	}()
	return func() uint64 {
		cancel()
		<-done
		return most.Load() - min(before, most.Load())
	}
}

// sayApart says an event of the attacker whose data is in the hub's bucket of payloads.
func (a *attacker) sayApart(kind events.Kind, id, digest string) {
	a.Helper()
	about := a.key
	if kind == events.ShardOffered {
		about = "unit-1"
	}
	text := "reknit event\n"
	for _, part := range []string{id, kind.Type(), events.NodeSource(a.key), about, cluster, "", "", "", digest} {
		text += fmt.Sprintf("%d:%s", len(part), part)
	}
	signature, err := a.seed.Sign([]byte(text))
	if err != nil {
		a.Fatal(err)
	}
	message, err := json.Marshal(map[string]string{
		"specversion": "1.0", "id": id, "type": kind.Type(), "source": events.NodeSource(a.key), "subject": about, "cluster": cluster,
		"datacontenttype": "application/json", "dataref": digest, "signature": base64.RawURLEncoding.EncodeToString(signature),
	})
	if err == nil {
		_, err = a.conn.Request(a.subject(kind, about), message, patience)
	}
	if err != nil {
		a.Fatal(err)
	}
}
