package agent

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/reknit/reknit/events"
	"github.com/reknit/reknit/services/agent/machine"
	"github.com/reknit/reknit/services/agent/retention"
	"github.com/reknit/reknit/services/agent/snapshots"
	"github.com/reknit/reknit/shared/bus"
)

func TestWhatFindsTheLogFullIsSaidOnceThereIsRoom(t *testing.T) {
	h := newHub(t)
	h.join("n1")
	session := h.sessions[0]
	profiled := session.machine.Profiled(time.Now(), events.Profile{Step: 1, SpeedFactor: 1})
	room := h.bound(1)
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	if session.say(ctx, profiled); ctx.Err() == nil {
		t.Fatal("given up while the log was full")
	}
	go session.say(t.Context(), profiled)
	h.bound(room)
	await[events.Profile](h, events.NodeProfiled)
}

// A finding that was dropped was told of no later snapshot, for it counted as told.
func TestWhatKeepsSnapshotsFromBeingWrittenIsSaidHoweverLongTheLogIsFull(t *testing.T) {
	usual := withdrawTime
	t.Cleanup(func() { withdrawTime = usual })
	withdrawTime = 100 * time.Millisecond
	h := newHub(t)
	h.keeps = snapshots.Settings{Folder: t.TempDir(), DiskEvery: 1, Keep: 2, MaxBytes: 1 << 20}
	h.join("n1")
	room := h.bound(1)
	id := retention.ID{Step: 10, Plan: events.Digest(nil)}
	h.sessions[0].unwritten(machine.DiskTier, id, []events.Range{{End: 1}}, machine.FullFinding, errors.New("no room"))
	time.Sleep(5 * withdrawTime)
	h.bound(room)
	if failed := await[events.SnapshotFailure](h, events.SnapshotFailed); failed.Reason != "no room" {
		t.Errorf("it tells %+v", failed)
	}
}

// The kit of an older installation lets a node say nothing of it, and what else there is to say must not wait for that.
func TestWhatAKitDoesNotLetANodeSayOfSnapshotsIsGivenUpAndToldOnce(t *testing.T) {
	log, usual := recorded(t), withdrawTime
	t.Cleanup(func() { withdrawTime = usual })
	withdrawTime = 100 * time.Millisecond
	failed := events.Event{Kind: events.SnapshotFailed, Cluster: "c", Subject: "n1"}
	h := guarded(t, failed.SubjectName())
	connection, err := bus.Connect(t.Context(), bus.Config{URL: h.url, Name: "test", Cluster: "c"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(connection.Close)
	if err := connection.Provision(t.Context()); err != nil {
		t.Fatal(err)
	}
	session, err := Join(t.Context(), Config{
		NATSURL: h.url, Cluster: "c", Node: "n1", Address: "127.0.0.1:1", MemoryBytes: 1 << 30, Job: h.job(),
		Snapshots: snapshots.Settings{Folder: t.TempDir(), DiskEvery: 1, Keep: 2, MaxBytes: 1 << 20},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(session.Close)
	id := retention.ID{Step: 10, Plan: events.Digest(nil)}
	said := session.machine.Unwritten(time.Now(), machine.DiskTier, id, []events.Range{{End: 1}}, machine.FullFinding, "no room")
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for range 3 {
		if session.sayFact(ctx, said); ctx.Err() != nil {
			t.Error("what else there is to say waits for it")
		}
	}
	for words, times := range map[string]int{"again, its kit is older": 1, "event not said": 0, "msg=NATS": 1} {
		if count := strings.Count(log.String(), words); count != times {
			t.Errorf("%q is told %d times, expected %d:\n%s", words, count, times, log)
		}
	}
}

// An agent that waited for its hub while others stopped the job was taken for one that was started since.
func TestARequestForAPlaceThatCannotBeSaidForLongIsMadeAnewWithTheAgeOfItsAgent(t *testing.T) {
	usual := joinHolds
	t.Cleanup(func() { joinHolds = usual })
	joinHolds = 200 * time.Millisecond
	h := newHub(t)
	began := time.Now()
	session, err := Join(t.Context(), Config{
		NATSURL: h.url, Cluster: "c", Node: "n1", Address: "127.0.0.1:1", MemoryBytes: 1 << 30, Job: h.job(), Started: began,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(session.Close)
	await[events.Join](h, events.JoinRequested)
	room := h.bound(1)
	session.tell(func() []machine.Action { return session.newMember(false) })
	time.Sleep(5 * joinHolds)
	waited := time.Since(began)
	h.bound(room)
	join := await[events.Join](h, events.JoinRequested)
	if least := (waited - 2*joinHolds).Seconds(); join.AgentSeconds < least {
		t.Errorf("it says that its agent runs for %.2f s, expected %.2f s at least", join.AgentSeconds, least)
	}
}

// A second request ended the membership that the first had asked for.
func TestARequestForAPlaceWhoseAcknowledgementIsLostIsNotMadeAnew(t *testing.T) {
	usual := joinHolds
	t.Cleanup(func() { joinHolds = usual })
	h := newHub(t)
	h.join("n1")
	session := h.sessions[0]
	asked, found, err := h.bus.LastEvent(t.Context(), events.EventStream, events.EventSubject("c", events.JoinRequested, "n1"))
	if err != nil || !found {
		t.Fatalf("found %t: %v", found, err)
	}
	session.mutex.Lock()
	session.asked, joinHolds = 0, 0
	session.mutex.Unlock()
	before := session.joins
	session.sayJoin(t.Context(), asked)
	session.mutex.Lock()
	defer session.mutex.Unlock()
	if session.joins != before || session.asked != asked.Sequence {
		t.Errorf("it asked %d times more, and its request is taken to be at %d of the log, expected %d", session.joins-before,
			session.asked, asked.Sequence)
	}
}

// An agent whose hub was away just after it began asked a second time, which ended the membership that it had.
func TestAFirstRequestForAPlaceWhoseAcknowledgementIsLostIsNotMadeAnew(t *testing.T) {
	usual := joinHolds
	t.Cleanup(func() { joinHolds = usual })
	h := newHub(t)
	asked := h.join("n1")
	session := h.sessions[0]
	session.mutex.Lock()
	session.joins, joinHolds = 0, 0 // the request that the log has is made once more, and no acknowledgement comes in time
	session.mutex.Unlock()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	if err := session.join(ctx); err != nil {
		t.Fatal(err)
	}
	session.mutex.Lock()
	defer session.mutex.Unlock()
	if last := session.machine.Snapshot().Incarnation; last != asked.Incarnation || session.asked == 0 {
		t.Errorf("it asks as %s, at %d of the log, expected as %s", last, session.asked, asked.Incarnation)
	}
}

// bound lets the log take nothing beyond so many bytes, and returns how many it took before.
func (h *hub) bound(bytes int64) (before int64) {
	h.t.Helper()
	js, err := jetstream.New(h.bus.Conn())
	if err != nil {
		h.t.Fatal(err)
	}
	log, err := js.Stream(h.t.Context(), h.bus.Lane(events.EventStream.Name))
	if err != nil {
		h.t.Fatal(err)
	}
	config := log.CachedInfo().Config
	before, config.MaxBytes = config.MaxBytes, bytes
	if _, err := js.UpdateStream(h.t.Context(), config); err != nil {
		h.t.Fatal(err)
	}
	return before
}
