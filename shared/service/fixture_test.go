package service_test

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/reknit/reknit/events"
	"github.com/reknit/reknit/shared/bus"
	"github.com/reknit/reknit/shared/embedded"
	"github.com/reknit/reknit/shared/service"
)

// fixture is a server with the streams, a bus to look at it, and a way to run a clerk.
type fixture struct {
	*testing.T
	url     string
	ctx     context.Context
	bus     *bus.Bus
	halt    func() // of the server
	restart func() // of the server, with its data
}

func newFixture(t *testing.T) *fixture {
	config := embedded.Config{StoreDir: t.TempDir()}
	server, err := embedded.Start(config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { server.Shutdown() })
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	t.Cleanup(cancel)
	f := &fixture{T: t, url: server.URL(), ctx: ctx}
	if _, err := fmt.Sscanf(f.url, "nats://127.0.0.1:%d", &config.Port); err != nil {
		t.Fatal(f.url, err)
	}
	f.halt = func() { server.Shutdown() }
	f.restart = func() {
		f.halt()
		if server, err = embedded.Start(config); err != nil {
			t.Fatal(err)
		}
	}
	f.bus = f.connect()
	if err := f.bus.Provision(ctx); err != nil {
		t.Fatal(err)
	}
	return f
}

func (f *fixture) connect() *bus.Bus {
	b, err := bus.Connect(f.ctx, bus.Config{URL: f.url, Name: "test", Cluster: cluster})
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(b.Close)
	return b
}

// running is a service under test.
type running struct {
	cancel context.CancelFunc
	end    func() error // waits for it
}

func (r running) stop() error { r.cancel(); return r.end() }

// run starts a service on a connection of its own.
func (f *fixture) run(options service.Options) running {
	ctx, cancel := context.WithCancel(f.ctx)
	options.Name, options.Bus = cmp.Or(options.Name, "negotiator"), f.connect()
	done := make(chan error, 1)
	go func() {
		defer close(done) // a mortal's goroutine ends within Run
		done <- service.Run(ctx, options)
	}()
	r := running{cancel, sync.OnceValue(func() error { return <-done })}
	f.Cleanup(func() { _ = r.stop() })
	return r
}

func (f *fixture) lose(node string) events.Event {
	event := monitor.First(time.Now(), node, events.NodeLost, node, &events.NodeState{Node: node, Incarnation: "a"})
	ack, err := f.bus.Publish(f.ctx, event)
	if err != nil {
		f.Fatal(err)
	}
	event.Sequence = ack.Sequence
	return event
}

// loseApart says that a node is lost in an event whose data is in the bucket of payloads.
func (f *fixture) loseApart(node string) {
	f.Helper()
	data := fmt.Appendf(nil, `{"node":%q,"incarnation":"a","reason":"","silentSeconds":0,"failuresPerNodeSecond":0}`, node)
	digest, err := f.bus.Put(f.ctx, events.PayloadBucket, data)
	if err != nil {
		f.Fatal(err)
	}
	f.slip(events.EventSubject(cluster, events.NodeLost, node), fmt.Sprintf(`{"specversion":"1.0","id":%q,"source":"/monitor",`+
		`"type":"io.reknit.node.lost.v1","subject":%q,"cluster":"test","dataref":%q}`, node, node, digest))
}

// dropPayloads has the bucket drop all that it has, as it does for what comes.
func (f *fixture) dropPayloads() {
	f.Helper()
	bucket, err := f.bus.JetStream().Stream(f.ctx, "OBJ_"+f.bus.Lane(events.PayloadBucket))
	if err == nil {
		err = bucket.Purge(f.ctx)
	}
	if err != nil {
		f.Fatal(err)
	}
}

// slip publishes what somebody else may have typed.
func (f *fixture) slip(subject, message string) {
	f.Helper()
	if _, err := f.bus.JetStream().Publish(f.ctx, subject, []byte(message)); err != nil {
		f.Fatal(err)
	}
}

// said follows what is said of a kind from the beginning.
func (f *fixture) said(kind events.Kind) <-chan events.Event {
	heard := make(chan events.Event, 64)
	stop, err := f.bus.Follow(f.ctx, events.EventStream, []string{events.EventSubject(cluster, kind, "*")}, bus.All,
		func(event events.Event) { heard <- event })
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(stop)
	return heard
}

// logged counts the events of a kind in the log; whoever follows them may not have heard the last yet.
func (f *fixture) logged(kind events.Kind) (count uint64) {
	log, err := f.bus.JetStream().Stream(f.ctx, f.bus.Lane(events.EventStream.Name))
	if err != nil {
		f.Fatal(err)
	}
	info, err := log.Info(f.ctx, jetstream.WithSubjectFilter(events.EventSubject(cluster, kind, "*")))
	if err != nil {
		f.Fatal(err)
	}
	for _, of := range info.State.Subjects {
		count += of
	}
	return count
}

// untilRemembered waits until a memory was written so many times; the first is the signature at a start.
func (f *fixture) untilRemembered(writes uint64) {
	f.Helper()
	f.until("it is remembered", func() bool { return f.writes() >= writes })
}

// forgetIDs has the log take again what was said before, as it does ten minutes later.
func (f *fixture) forgetIDs() {
	log, err := f.bus.JetStream().Stream(f.ctx, f.bus.Lane(events.EventStream.Name))
	if err != nil {
		f.Fatal(err)
	}
	config := log.CachedInfo().Config
	config.Duplicates = 100 * time.Millisecond
	if _, err := f.bus.JetStream().UpdateStream(f.ctx, config); err != nil {
		f.Fatal(err)
	}
	time.Sleep(2 * config.Duplicates)
}

func (f *fixture) expect(heard <-chan events.Event, subjects ...string) (last events.Event) {
	f.Helper()
	for _, subject := range subjects {
		select {
		case last = <-heard:
			if last.Subject != subject {
				f.Fatalf("expected %s of %s, got %s", last.Kind, subject, last.Subject)
			}
		case <-f.ctx.Done():
			f.Fatalf("expected %s, got nothing", subject)
		}
	}
	return last
}

// unacknowledged returns how many messages instances have and have not acknowledged.
func (f *fixture) unacknowledged() (count int) {
	log, err := f.bus.JetStream().Stream(f.ctx, f.bus.Lane(events.EventStream.Name))
	if err != nil {
		f.Fatal(err)
	}
	consumers := log.ListConsumers(f.ctx)
	for info := range consumers.Info() {
		count += info.NumAckPending // none for who follows the log
	}
	if consumers.Err() != nil {
		f.Fatal(consumers.Err())
	}
	return count
}

func (f *fixture) untilAcknowledged() {
	f.Helper()
	for f.unacknowledged() > 0 {
		if f.ctx.Err() != nil {
			f.Fatal("never acknowledged")
		}
	}
}

// until asks the server or a machine again and again, for neither says when something holds.
func (f *fixture) until(what string, holds func() bool) {
	f.Helper()
	for again := time.Tick(10 * time.Millisecond); !holds(); {
		select {
		case <-again:
		case <-f.ctx.Done():
			f.Fatalf("never: %s", what)
		}
	}
}

// untilReadySays asks /readyz until the answer has a text in it.
func (f *fixture) untilReadySays(address, text string) {
	f.Helper()
	f.untilSays(address+"/readyz", text)
}

func (f *fixture) untilSays(page, text string) {
	f.Helper()
	said := ""
	for ; !strings.Contains(said, text); said = says(page) {
		if f.ctx.Err() != nil {
			f.Fatalf("expected %s to say %q, got %q", page, text, said)
		}
	}
}

// staysLive asks /healthz for longer than a service may be stuck.
func (f *fixture) staysLive(address string) {
	f.Helper()
	for start := time.Now(); time.Since(start) < 20*stands; time.Sleep(stands) {
		if said := says(address + "/healthz"); said != "ok\n" {
			f.Fatalf("expected /healthz to stay ok, got %q", said)
		}
	}
}

func says(page string) string {
	response, err := http.Get("http://" + page)
	if err != nil {
		return err.Error()
	}
	defer response.Body.Close()
	body, _ := io.ReadAll(response.Body)
	return string(body)
}

// freeAddress returns one below the ports that Linux gives to outgoing connections, one of which may take it before the service
// listens there.
func freeAddress(t *testing.T) string {
	for range 100 {
		listener, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", 20_000+rand.IntN(12_000)))
		if err == nil {
			defer listener.Close()
			return listener.Addr().String()
		}
	}
	t.Fatal("no port is free")
	return ""
}

func fetch(t *testing.T, url string) string {
	response, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(body)
}

// counted reports whether a page of metrics has a line of that name with all the labels.
func counted(page, name string, labels ...string) bool {
	for line := range strings.Lines(page) {
		has := strings.HasPrefix(line, name)
		for _, label := range labels {
			has = has && strings.Contains(line, label)
		}
		if has {
			return true
		}
	}
	return false
}
