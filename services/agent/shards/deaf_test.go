package shards

import (
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
)

// deafen has a reader ask for so many chunks of a part that is in the bucket, and read nothing of what comes.
func deafen(t *testing.T, store *Store, sequences []uint64, times int) {
	t.Helper()
	conn, err := net.Dial("tcp", strings.TrimPrefix(store.URL(), "nats://"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	inbox := nats.InboxPrefix + strings.Repeat("d", 26)
	fmt.Fprintf(conn, "CONNECT {\"verbose\":false,\"headers\":true,\"protocol\":1,\"name\":%q}\r\nSUB %s.> 1\r\n", inbox, inbox)
	for i := range times {
		request := fmt.Sprintf(`{"seq":%d}`, sequences[i%len(sequences)])
		fmt.Fprintf(conn, "PUB $JS.API.DIRECT.GET.%s %s.%d %d\r\n%s\r\n", streamName(store.bucket), inbox, i, len(request), request)
	}
}

// Readers that are deaf hold up neither others nor the end of the store.
func TestAGiverOfDeafReadersGivesToOthersAndEnds(t *testing.T) {
	want, others := cut(content(62, 2*testPart)), cut(content(63, 4*testPart))
	store := serve(t, StoreConfig{Bucket: "shards-n1"})
	want.offerTo(store)
	others.offerTo(store)
	answer, err := reads(t, store, from(2)).Request(wantSubject(store.bucket), []byte(want.parts[0].Digest), time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	found, err := parseManifest(answer)
	if err != nil {
		t.Fatal(err)
	}
	for range 4 {
		deafen(t, store, found.sequences, 48)
	}
	fetch(t, transferFrom(t, store.source()), others)
	ended := make(chan struct{})
	go func() { store.Close(); close(ended) }()
	select {
	case <-ended:
	case <-time.After(writeDeadline / 2):
		t.Error("the store waits for who reads nothing")
	}
}
