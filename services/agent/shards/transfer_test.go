package shards

import (
	"bytes"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/reknit/reknit/services/agent/queue"
)

func TestThreeSourcesShareTheWork(t *testing.T) {
	want := cut(content(20, 9*testPart))
	var sources []Source
	for i := range 3 {
		store := serve(t, StoreConfig{Bucket: bucketName(i)})
		want.offerTo(store)
		sources = append(sources, (&link{rate: 8 << 20}).open(t, store)) // the links bound it, not this machine
	}
	progress := fetch(t, transferFrom(t, sources...), want)
	for _, source := range progress.Sources {
		if source.Bytes < progress.Total/10 {
			t.Errorf("%s gave %d of %d bytes, expected a good share: %v", source.Name, source.Bytes, progress.Total, progress)
		}
	}
}

func TestASourceThatDiesIsReplacedByTheOthers(t *testing.T) {
	want := cut(content(21, 12*testPart))
	var sources []Source
	for i := range 3 {
		store := serve(t, StoreConfig{Bucket: bucketName(i)})
		want.offerTo(store)
		between := &link{rate: 16 << 20} // the links bound it, not this machine
		if i == 0 {
			between.cutAt = testPart / 2
		}
		sources = append(sources, between.open(t, store))
	}
	progress := fetch(t, transferFrom(t, sources...), want)
	dead := progress.Sources[0]
	if dead.State != Away || dead.Stalled == 0 || progress.Duplicate > testPart {
		t.Errorf("%+v, %d bytes came twice", dead, progress.Duplicate)
	}
}

// A server that hangs says nothing, and its connection stays.
func TestASourceThatFallsSilentIsReplaced(t *testing.T) {
	want := cut(content(22, 8*testPart))
	good, silent := serve(t, StoreConfig{Bucket: "shards-n1"}), serve(t, StoreConfig{Bucket: "shards-n2"})
	want.offerTo(good)
	want.offerTo(silent)
	progress := fetch(t, transferFrom(t, good.source(), (&link{hangAt: testPart / 2}).open(t, silent)), want)
	if progress.Sources[1].Stalled == 0 || progress.Duplicate > testPart {
		t.Errorf("%d bytes came twice: %v", progress.Duplicate, progress)
	}
}

func TestALoneSourceThatComesBackIsResumedAtTheNextChunk(t *testing.T) {
	want := cut(content(23, 6*testPart))
	store := serve(t, StoreConfig{Bucket: "shards-n1"})
	want.offerTo(store)
	breaks := &link{rate: 100 << 20, breakAt: 2*testPart + testPart/2}
	progress := fetch(t, transferFrom(t, breaks.open(t, store)), want)
	carried := breaks.carried.Load()
	source := progress.Sources[0]
	if source.Stalled != 1 || progress.Duplicate > testPart || carried > progress.Total+testPart+1<<20 {
		t.Errorf("%+v, the link carried %d bytes", source, carried)
	}
}

func TestAConnectionThatIsLostWithoutAWordIsMadeAnewAfterTheStall(t *testing.T) {
	want := cut(content(24, 2*testPart))
	store := serve(t, StoreConfig{Bucket: "shards-n1"})
	want.offerTo(store)
	progress := fetch(t, transferFrom(t, (&link{rate: 100 << 20, loseAt: testPart}).open(t, store)), want)
	source := progress.Sources[0]
	if source.Stalled != 1 || progress.Duplicate >= chunkBytes || progress.Seconds > 2*usualStall.Seconds() {
		t.Errorf("%.2f s: %+v", progress.Seconds, source)
	}
}

// A chunk takes half a second.
func TestALinkThatIsSlowerThanAChunkInAStallIsNotTakenForDead(t *testing.T) {
	want := cut(content(25, 3*chunkBytes))
	store := serve(t, StoreConfig{Bucket: "shards-n1"})
	want.offerTo(store)
	transfer := transferFrom(t, (&link{rate: 2 * chunkBytes}).open(t, store))
	transfer.stall = 300 * time.Millisecond
	if progress := fetch(t, transfer, want); progress.Sources[0].Stalled != 0 || progress.Duplicate != 0 {
		t.Errorf("%+v", progress)
	}
}

func TestACorruptSourceIsFoundAndReplaced(t *testing.T) {
	want := cut(content(24, 10*testPart))
	good, bad := serve(t, StoreConfig{Bucket: "shards-n1"}), serve(t, StoreConfig{Bucket: "shards-n2"})
	want.offerTo(good)
	for _, part := range want.parts {
		forge(bad, part.Digest, want.data[part.First:part.End])
	}
	progress := fetch(t, transferFrom(t, (&link{rate: 40 << 20}).open(t, good), bad.source()), want)
	if found := progress.Sources[1]; found.State != Corrupt || found.Corrupt < 2 || found.Corrupt > 2+queue.MostClaims {
		t.Errorf("%+v, expected it to be left after two corrupt parts and those that were under way", found)
	}
	if progress.Sources[0].Corrupt != 0 {
		t.Errorf("the good source is blamed: %+v", progress.Sources[0])
	}
}

func TestOnlyCorruptPartsComeAgain(t *testing.T) {
	want := cut(content(27, 4*testPart), "shards-n2")
	good, bad := serve(t, StoreConfig{Bucket: "shards-n1"}), serve(t, StoreConfig{Bucket: "shards-n2"})
	want.offerTo(good)
	for i, part := range want.parts {
		forge(bad, part.Digest, want.data[part.First:part.End])
		want.parts[i].Spares = []string{"shards-n1"}
	}
	progress := fetch(t, transferFrom(t, good.source(), bad.source()), want)
	came, corrupt := progress.Sources[0].Bytes+progress.Sources[1].Bytes, progress.Sources[1].Corrupt
	if came+progress.Duplicate > progress.Total+int64(corrupt)*testPart || corrupt == 0 {
		t.Errorf("%d bytes of %d came, of %d corrupt parts", came, progress.Total, corrupt)
	}
}

func TestATransferOfWhichAllSourcesAreCorruptFails(t *testing.T) {
	want := cut(content(25, testPart))
	bad := serve(t, StoreConfig{Bucket: "shards-n1"})
	forge(bad, want.parts[0].Digest, want.data)
	transfer := transferFrom(t, bad.source())
	if err := transfer.Add(Layer{Into: make([]byte, testPart), Parts: want.parts}); err != nil {
		t.Fatal(err)
	}
	transfer.Seal()
	err := transfer.Run(within(t))
	if !errors.Is(err, queue.ErrCorrupt) || !strings.Contains(err.Error(), want.parts[0].Digest) {
		t.Fatalf("got %v, expected ErrCorrupt and the part", err)
	}
}

// forge has a store give a part of which one bit is flipped, under the name of the true one.
func forge(store *Store, digest string, data []byte) {
	flipped := bytes.Clone(data)
	flipped[len(flipped)/2] ^= 1
	store.Offer(digest, flipped)
}

func TestASlowSourceDoesNotHoldTheTail(t *testing.T) {
	want := cut(content(26, 4*testPart))
	const rate = 10 << 20 // the links bound it, not this machine
	var sources []Source
	for i := range 2 {
		store := serve(t, StoreConfig{Bucket: bucketName(i)})
		want.offerTo(store)
		sources = append(sources, (&link{rate: rate / (1 + 9*float64(i))}).open(t, store))
	}
	progress := fetch(t, transferFrom(t, sources...), want)
	ideal, held := float64(progress.Total)/(1.1*rate), testPart/(0.1*rate)
	if progress.Seconds > (ideal+held)/2 {
		t.Errorf("took %.2f s, %.2f s are possible, and %.2f s where the slow source keeps a part: %v",
			progress.Seconds, ideal, held, progress)
	}
	if slow := progress.Sources[1]; slow.Bytes == 0 || progress.Duplicate >= chunkBytes {
		t.Errorf("the slow source gave %d bytes, %d came twice", slow.Bytes, progress.Duplicate)
	}
}

// The spare has the part all the time; its giver never does.
func TestASpareIsAskedForWhatItsGiverDoesNotBring(t *testing.T) {
	want := cut(content(30, 2*testPart), "shards-n1")
	giver, spare := serve(t, StoreConfig{Bucket: "shards-n1"}), serve(t, StoreConfig{Bucket: "shards-n2"})
	want.offerTo(spare)
	for i := range want.parts {
		want.parts[i].Spares = []string{"shards-n2"}
	}
	progress := fetch(t, transferFrom(t, giver.source(), spare.source()), want)
	if progress.Sources[1].Bytes != progress.Total || progress.Seconds < SpareWait.Seconds() {
		t.Errorf("%+v", progress)
	}
}

func TestAPartThatIsNotThereYetIsWaitedFor(t *testing.T) {
	want := cut(content(28, 3*testPart))
	store := serve(t, StoreConfig{Bucket: "shards-n1"})
	transfer := transferFrom(t, store.source())
	into := make([]byte, len(want.data))
	if err := transfer.Add(Layer{Into: into, Parts: want.parts[:1]}); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error)
	go func() { ended <- transfer.Run(within(t)) }()
	for waited, deadline := false, within(t); !waited; {
		if deadline.Err() != nil {
			t.Fatal("nobody waits for the part")
		}
		transfer.mutex.Lock()
		for part := range transfer.layers {
			waited = part.Absent(transfer.queue.Sources[0])
		}
		transfer.mutex.Unlock()
	}
	want.offerTo(store)
	if err := transfer.Add(Layer{Into: into, Parts: want.parts[1:]}); err != nil {
		t.Fatal(err)
	}
	transfer.Seal()
	if err := <-ended; err != nil || !bytes.Equal(into, want.data) {
		t.Fatalf("%v, right bytes: %t", err, bytes.Equal(into, want.data))
	}
}

func TestTheHubServesWhatANeighbourCannot(t *testing.T) {
	want := cut(content(29, 4*testPart))
	hub := serve(t, StoreConfig{Bucket: "shards"})
	want.offerTo(hub)
	unreachable := Source{Name: "n1", URL: "nats://127.0.0.1:1", Bucket: "shards-n1"}
	progress := fetch(t, transferFrom(t, unreachable, hub.source()), want)
	if progress.Sources[0].State != Away || progress.Sources[1].Bytes != progress.Total {
		t.Errorf("%+v", progress)
	}
}

func TestATransferWithNothingToFetchEnds(t *testing.T) {
	transfer := transferFrom(t, Source{Name: "n1", URL: "nats://127.0.0.1:1", Bucket: "shards-n1"})
	transfer.Seal()
	if err := transfer.Run(within(t)); err != nil {
		t.Fatal(err)
	}
}

func TestBadInputIsNamed(t *testing.T) {
	good := Source{Name: "n1", URL: "nats://127.0.0.1:1", Bucket: "shards-n1"}
	if _, err := NewTransfer([]Source{good, good}); err == nil || !strings.Contains(err.Error(), "each name once") {
		t.Errorf("got %v", err)
	}
	_, err := NewTransfer([]Source{{Name: "n1"}})
	if err == nil || !strings.Contains(err.Error(), "expected Name, URL and Bucket") {
		t.Errorf("got %v", err)
	}
	digest := cut(content(30, 8)).parts[0].Digest
	for says, part := range map[string]Part{
		"Digest: expected sha256:":                                      {Digest: "md5:00", End: 8},
		"First and End: expected a range":                               {Digest: digest, End: 9},
		"Sources and Spares: expected names of this transfer's sources": {Digest: digest, End: 8, Sources: []string{"n2"}},
	} {
		err := transferFrom(t, good).Add(Layer{Into: make([]byte, 8), Parts: []Part{part}})
		if err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("got %v, expected %q", err, says)
		}
	}
}

func TestProgressReads(t *testing.T) {
	sources := []SourceProgress{{Name: "n1", State: Active, Recent: 40 << 20}, {Name: "hub", State: Idle}}
	progress := Progress{Done: 3 << 20, Total: 8 << 20, Sources: sources}
	if line := progress.String(); line != "3.0 of 8.0 MiB, n1 active 40.0 MiB/s, hub idle" {
		t.Error(line)
	}
}
