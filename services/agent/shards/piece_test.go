package shards

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/reknit/reknit/events"
)

func TestTheLibraryReadsAPieceThatIsGiven(t *testing.T) {
	store := serve(t, StoreConfig{Bucket: "shards-n1"})
	data := content(80, testPart+777)
	digest := events.Digest(data)
	store.Offer(digest, data)
	reader, size := reads(t, store), int64(len(data))
	for _, asked := range []piece{{digest, 0, chunkBytes}, {digest, 2 * chunkBytes, 5 * chunkBytes}, {digest, testPart, size}} {
		if _, err := reader.Request(wantSubject(store.bucket), []byte(asked.name()), time.Minute); err != nil {
			t.Fatal(err)
		}
		got, err := library(t, store).GetBytes(within(t), asked.name())
		if err != nil || !bytes.Equal(got, data[asked.first:asked.end]) {
			t.Errorf("%s: %d bytes, %v", asked.name(), len(got), err)
		}
		if _, err := reader.Request(haveSubject(store.bucket), []byte(asked.name()), time.Minute); err != nil {
			t.Fatal(err)
		}
	}
	until(t, "nothing is left in the bucket", func() bool { return messagesIn(t, store) == 0 })
}

func TestWhatNoPieceIsIsNotGiven(t *testing.T) {
	store := serve(t, StoreConfig{Bucket: "shards-n1"})
	data := content(81, testPart)
	digest := events.Digest(data)
	store.Offer(digest, data)
	reader := reads(t, store)
	for _, asked := range []string{
		"", ".", " ", digest + ".", digest + ".0-", digest + ".0-0", digest + ".0-1", digest + ".1-524288", digest + ".0-00524288",
		digest + ".+0-524288", digest + ".-524288-524288", digest + ".524288-0", digest + ".524288-524288", digest + ".0-524288.x",
		digest + ".0-4718592", digest + ".0-99999999999999999999", digest + ".>", digest + ".*-*",
		digest + " ", digest + " 1", digest + " 1 a", digest + " 1 a.", digest + " 0 a.1", digest + " -1 a.1", digest + " 9 a.1",
		digest + " 1 *.1", digest + " 1 a.>", digest + " 1 a.1 ", digest + " 1 a.b.1", digest + ".0-524288 2 a.1",
	} {
		answer, err := reader.Request(wantSubject(store.bucket), []byte(asked), time.Minute)
		if err != nil || answer.Header.Get("Status") != statusAbsent {
			t.Errorf("%q: %+v, %v", asked, answer, err)
		}
	}
	if messages := messagesIn(t, store); messages != 0 {
		t.Errorf("%d messages were put", messages)
	}
}

// inboxOf subscribes below what a connection is named after.
func inboxOf(t *testing.T, conn *nats.Conn) (below string, heard *nats.Subscription) {
	t.Helper()
	inbox := conn.NewInbox()
	heard, err := conn.SubscribeSync(inbox + ".*")
	if err := errors.Join(err, conn.Flush()); err != nil {
		t.Fatal(err)
	}
	return inbox[strings.LastIndex(inbox, ".")+1:], heard
}

func TestTheFirstChunksComeWithTheRecordAsDirectGetsAnswerAndToWhoAskedForThem(t *testing.T) {
	store := serve(t, StoreConfig{Bucket: "shards-n1"})
	data := content(82, testPart)
	digest := events.Digest(data)
	store.Offer(digest, data)
	reader, other := reads(t, store), reads(t, store)
	below, heard := inboxOf(t, reader)
	_, others := inboxOf(t, other)
	asked := piece{digest, chunkBytes, 4 * chunkBytes}
	record, err := reader.Request(wantSubject(store.bucket), fmt.Append(nil, asked.name(), " ", push{2, below, 7}), time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	told, err := parseManifest(record)
	if err != nil || told == nil {
		t.Fatalf("%v, %v", told, err)
	}
	for range 2 {
		chunk, err := heard.NextMsg(time.Minute)
		if err != nil {
			t.Fatal(err)
		}
		token, _ := strconv.Atoi(chunk.Subject[strings.LastIndex(chunk.Subject, ".")+1:])
		at := token - 7
		sequence := chunk.Header.Get(jetstream.SequenceHeader)
		if sequence != fmt.Sprint(told.sequences[at]) || !bytes.Equal(chunk.Data, data[(at+1)*chunkBytes:(at+2)*chunkBytes]) {
			t.Errorf("chunk %d is that of sequence %s", at, sequence)
		}
	}
	if err := errors.Join(reader.Flush(), other.Flush()); err != nil {
		t.Fatal(err)
	}
	if mine, _, _ := heard.Pending(); mine > 0 {
		t.Errorf("%d chunks came that nobody asked for", mine)
	}
	if theirs, _, _ := others.Pending(); theirs > 0 {
		t.Errorf("another reader hears %d of them", theirs)
	}
}

// A link would be idle while a giver puts the rest.
func TestTheFirstChunkOfAPieceIsSentBeforeTheLastIsPut(t *testing.T) {
	store := serve(t, StoreConfig{Bucket: "shards-n1"})
	data := content(84, 64*chunkBytes)
	digest := events.Digest(data)
	store.Offer(digest, data)
	reader := reads(t, store)
	below, heard := inboxOf(t, reader)
	record := heard.Subject[:len(heard.Subject)-1] + "record"
	asked := piece{digest, 0, 64 * chunkBytes}
	err := reader.PublishRequest(wantSubject(store.bucket), record, fmt.Append(nil, asked.name(), " ", push{64, below, 1}))
	if err != nil {
		t.Fatal(err)
	}
	came := map[string]int{}
	for range 65 {
		message, err := heard.NextMsg(time.Minute)
		if err != nil {
			t.Fatal(err)
		}
		if message.Subject == record && len(came) < 32 {
			t.Errorf("the record comes behind %d chunks", len(came))
		}
		came[message.Subject]++
	}
	for subject, times := range came {
		if times != 1 {
			t.Errorf("%s came %d times", subject, times)
		}
	}
}

// Its first chunks come a round trip earlier so.
func TestWhatATransferBeginsWithIsSentWithoutAskingAgain(t *testing.T) {
	want := cut(content(83, 3*chunkBytes+777))
	store := serve(t, StoreConfig{Bucket: "shards-n1"})
	want.offerTo(store)
	answers := make(chan string, 100)
	conn := ownersConn(t, store)
	_, err := conn.Subscribe(direct("$JS.API", store.bucket), func(asked *nats.Msg) { answers <- asked.Reply })
	if err := errors.Join(err, conn.Flush()); err != nil {
		t.Fatal(err)
	}
	fetch(t, transferFrom(t, store.source()), want)
	for range 4 {
		if reply := <-answers; !strings.HasPrefix(reply, pushed) {
			t.Errorf("a chunk was asked for once more, for %s", reply)
		}
	}
	if len(answers) > 0 {
		t.Errorf("%d chunks more were asked for", len(answers))
	}
}
