package bus_test

import (
	"context"
	"errors"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/reknit/reknit/events"
	"github.com/reknit/reknit/shared/bus"
	"github.com/reknit/reknit/shared/embedded"
)

// store is a server's, which may be exchanged while it is down.
type store struct {
	t      *testing.T
	config embedded.Config
	server *embedded.Server
}

func newStore(t *testing.T) *store {
	s := &store{t: t, config: embedded.Config{StoreDir: filepath.Join(t.TempDir(), "store")}}
	s.start()
	address, err := url.Parse(s.server.URL())
	if err != nil {
		t.Fatal(err)
	}
	if s.config.Port, err = strconv.Atoi(address.Port()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.server.Shutdown() })
	return s
}

func (s *store) start() {
	s.t.Helper()
	server, err := embedded.Start(s.config)
	if err != nil {
		s.t.Fatal(err)
	}
	s.server = server
}

// exchange does something to the store while its server is down.
func (s *store) exchange(how func(dir string) error) {
	s.t.Helper()
	s.server.Shutdown()
	if err := how(s.config.StoreDir); err != nil {
		s.t.Fatal(err)
	}
	s.start()
}

// copyTo replaces a folder by a copy of the store.
func copyTo(folder string) func(string) error {
	return func(dir string) error { return os.CopyFS(folder, os.DirFS(dir)) }
}

func restoreFrom(folder string) func(string) error {
	return func(dir string) error { return errors.Join(os.RemoveAll(dir), os.CopyFS(dir, os.DirFS(folder))) }
}

func replaced(t *testing.T, ctx context.Context, b *bus.Bus) error {
	t.Helper()
	select {
	case err := <-b.Replaced():
		return err
	case <-ctx.Done():
		t.Fatal("nobody says that the log is another one")
		return nil
	}
}

// follow returns what a follower of all events hears from now on.
func follow(t *testing.T, ctx context.Context, b *bus.Bus) <-chan events.Event {
	t.Helper()
	heard := make(chan events.Event, 8)
	stop, err := b.Follow(ctx, events.EventStream, allOfTest, bus.New, func(event events.Event) { heard <- event })
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(stop)
	return heard
}

// newLog is a store with a log of which nothing was said yet.
func newLog(t *testing.T) (*store, context.Context, *bus.Bus) {
	t.Helper()
	s := newStore(t)
	ctx, b := connect(t, s.server.URL(), cluster)
	if err := b.Provision(ctx); err != nil {
		t.Fatal(err)
	}
	return s, ctx, b
}

// read says a first event, and returns a follower and a service that have read it.
func read(t *testing.T, ctx context.Context, b *bus.Bus) (<-chan events.Event, *bus.Consumer) {
	t.Helper()
	heard, consumer := follow(t, ctx, b), consume(t, ctx, b)
	publish(t, ctx, b, lost("n1", "silent"))
	<-heard
	next(t, ctx, consumer)
	return heard, consumer
}

func TestWhereTheStoreWasWipedStreamsAreMadeAgainAndEverybodyHearsIt(t *testing.T) {
	s, ctx, b := newLog(t)
	heard, consumer := read(t, ctx, b)
	s.exchange(os.RemoveAll)
	if err := replaced(t, ctx, b); !errors.Is(err, bus.ErrLogReplaced) {
		t.Errorf("it says %v", err)
	}
	if err := b.Provisioned(ctx); err != nil {
		t.Errorf("not all is there again: %v", err)
	}
	if ack := publish(t, ctx, b, lost("n2", "silent")); ack.Sequence != 1 {
		t.Errorf("the new log begins at %d", ack.Sequence)
	}
	if event := <-heard; event.Subject != "n2" {
		t.Errorf("a follower hears of %s", event.Subject)
	}
	if _, err := consumer.Next(ctx); !errors.Is(err, bus.ErrLogReplaced) {
		t.Errorf("a service reads on: %v", err)
	}
}

// The other one stands for a wiped store in which somebody was faster.
func TestOfALogThatWasMadeAnewAFollowerHearsWhatOthersSaidBeforeItCame(t *testing.T) {
	s, ctx, b := newLog(t)
	heard, _ := read(t, ctx, b)
	other, _, first := newLog(t)
	publish(t, ctx, first, lost("n2", "silent"))
	made := filepath.Join(t.TempDir(), "made")
	other.exchange(copyTo(made))
	s.exchange(restoreFrom(made))
	if err := replaced(t, ctx, b); !errors.Is(err, bus.ErrLogReplaced) {
		t.Errorf("it says %v", err)
	}
	if ack := publish(t, ctx, b, lost("n3", "silent")); ack.Sequence != 2 {
		t.Fatalf("the other log goes on at %d", ack.Sequence)
	}
	if event := <-heard; event.Subject != "n2" {
		t.Errorf("a follower hears of %s first", event.Subject)
	}
}

func TestALogThatIsOlderThanWhatWasReadIsAnotherOne(t *testing.T) {
	bus.SetSureAfter(t, time.Millisecond)
	s, ctx, b := newLog(t)
	backup := filepath.Join(t.TempDir(), "backup")
	heard := follow(t, ctx, b)
	publish(t, ctx, b, lost("n1", "silent"))
	<-heard
	s.exchange(copyTo(backup))
	publish(t, ctx, b, lost("n2", "silent"))
	<-heard
	s.exchange(restoreFrom(backup))
	if err := replaced(t, ctx, b); !errors.Is(err, bus.ErrLogReplaced) {
		t.Errorf("it says %v", err)
	}
	publish(t, ctx, b, lost("n3", "silent"))
	if event := <-heard; event.Subject != "n3" || event.Sequence != 2 {
		t.Errorf("a follower hears of %s at %d", event.Subject, event.Sequence)
	}
	s.exchange(restoreFrom(backup))
	_, other := connect(t, s.server.URL(), cluster)
	publish(t, ctx, other, lost("n4", "silent")) // takes the place of what was read of n3, or comes behind what is found to be missing
	if err := replaced(t, ctx, b); !errors.Is(err, bus.ErrLogReplaced) {
		t.Errorf("with another message in the place of the last: %v", err)
	}
}

// A message has the date that somebody gives it who has the disk of a server.
func TestALogWithOtherWordsInThePlaceOfThoseThatWereReadIsAnotherOne(t *testing.T) {
	_, ctx, b := newLog(t)
	publish(t, ctx, b, lost("n1", "silent"))
	log, err := b.JetStream().Stream(ctx, b.Lane(events.EventStream.Name))
	if err != nil {
		t.Fatal(err)
	}
	is, err := log.GetMsg(ctx, log.CachedInfo().State.LastSeq)
	if err != nil {
		t.Fatal(err)
	}
	b.Reads(is.Sequence, is.Time, append([]byte(" "), is.Data...))
	if err := bus.MakeSure(ctx, b); err != nil {
		t.Fatal(err)
	}
	if err := replaced(t, ctx, b); !errors.Is(err, bus.ErrLogReplaced) {
		t.Errorf("it says %v", err)
	}
}

func TestALogThatIsTheSameAfterARestartIsNotReplaced(t *testing.T) {
	s, ctx, b := newLog(t)
	heard, consumer := read(t, ctx, b)
	s.exchange(func(string) error { return nil })
	publish(t, ctx, b, lost("n2", "silent"))
	if event := <-heard; event.Subject != "n2" || event.Sequence != 2 {
		t.Errorf("a follower hears of %s at %d", event.Subject, event.Sequence)
	}
	next(t, ctx, consumer)
	if err := bus.MakeSure(ctx, b); err != nil {
		t.Error(err)
	}
	select {
	case err := <-b.Replaced():
		t.Error(err)
	default:
	}
}

// TestWhatWasDecidedInALogIsNotSaidInAnOlderOne has a service say and remember something while the store is away, and come back to an
// older one. The lease is there, too, and the memory has the same revision.
func TestWhatWasDecidedInALogIsNotSaidInAnOlderOne(t *testing.T) {
	s, backup := newStore(t), filepath.Join(t.TempDir(), "backup")
	ctx, b := connect(t, s.server.URL(), cluster)
	if err := b.Provision(ctx); err != nil {
		t.Fatal(err)
	}
	heard := follow(t, ctx, b)
	lease, consumer := publish(t, ctx, b, lost("n1", "silent")), consume(t, ctx, b)
	<-heard
	next(t, ctx, consumer)
	b.Fence(lost("n1", "silent").SubjectName(), lease.Sequence)
	s.exchange(copyTo(backup))
	publish(t, ctx, b, lost("n2", "silent"))
	<-heard
	delivery := next(t, ctx, consumer)
	delivery.Done()
	s.server.Shutdown()
	for b.Conn().IsConnected() { // the client hears of the end later
		time.Sleep(time.Millisecond)
	}
	said := make(chan error, 2)
	go func() {
		_, err := b.Publish(ctx, lost("n3", "silent"))
		said <- err
	}()
	go func() {
		said <- b.RepeatInLog(ctx, "memory", func(context.Context) error {
			if !b.Conn().IsConnected() {
				return errors.New("the store is away")
			}
			t.Error("what was remembered of a log is written beside an older one")
			return nil
		})
	}()
	if err := restoreFrom(backup)(s.config.StoreDir); err != nil {
		t.Fatal(err)
	}
	s.start()
	for range 2 {
		if err := <-said; !errors.Is(err, bus.ErrLogReplaced) {
			t.Errorf("it is said, with %v", err)
		}
	}
	if _, err := b.Publish(ctx, lost("n4", "silent")); !errors.Is(err, bus.ErrLogReplaced) {
		t.Errorf("who has the lease of the log before says on: %v", err)
	}
	if err := delivery.Ack(); !errors.Is(err, bus.ErrLogReplaced) {
		t.Errorf("a message that is gone is acknowledged: %v", err)
	}
	_, other := connect(t, s.server.URL(), cluster)
	publish(t, ctx, other, lost("n5", "silent"))
	if _, err := consumer.Next(ctx); !errors.Is(err, bus.ErrLogReplaced) {
		t.Errorf("a reader of the log before reads on: %v", err)
	}
	if done, _, err := b.Reach(ctx, "reader"); err != nil || done > lease.Sequence {
		t.Errorf("all up to %d counts as acknowledged, in a log that ends at %d: %v", done, lease.Sequence, err)
	}
}
