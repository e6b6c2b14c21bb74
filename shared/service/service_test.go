package service_test

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/reknit/reknit/events"
	"github.com/reknit/reknit/shared/bus"
	"github.com/reknit/reknit/shared/embedded"
	"github.com/reknit/reknit/shared/service"
	"github.com/reknit/reknit/shared/telemetry"
)

const cluster = "test"

var monitor = events.Speaker{Source: "/monitor", Cluster: cluster}

func TestMain(m *testing.M) {
	telemetry.Level.Set(slog.LevelError + 1) // faults are provoked here
	if _, err := telemetry.Setup(context.Background(), "test"); err != nil {
		panic(err)
	}
	os.Exit(m.Run())
}

// clerk is a machine that aborts a negotiation for each lost node and counts them.
type clerk struct {
	mutex   sync.Mutex
	Count   int
	heard   []string // subjects, since the start of the process
	ticks   int
	ticking chan struct{} // if any, one token: a tick came
	crashes bool          // at the snapshot after the first event
	waits   chan struct{} // if any, before it has handled an event
}

func (c *clerk) Hears() []events.Kind { return []events.Kind{events.NodeLost} }

func (c *clerk) Handle(event events.Event) ([]events.Event, error) {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	c.heard = append(c.heard, event.Subject)
	if event.Subject == "absurd" {
		return nil, errors.New("no such node")
	}
	if c.waits != nil {
		<-c.waits
	}
	c.Count++
	if event.Subject == "poison" {
		panic("cannot bear it")
	}
	return []events.Event{c.abort(event, fmt.Sprintf("g%d", c.Count))}, nil
}

func (c *clerk) abort(cause events.Event, negotiation string) events.Event {
	speaker := events.Speaker{Source: "/negotiator", Cluster: cluster}
	return speaker.Say(cause, events.Aborted, negotiation, &events.Abort{Negotiation: negotiation, Generation: uint64(c.Count)})
}

func (c *clerk) Tick(time.Time) []events.Event {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	c.ticks++
	select {
	case c.ticking <- struct{}{}:
	default:
	}
	return nil
}

func (c *clerk) hearings() int {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	return len(c.heard)
}

func (c *clerk) Snapshot() ([]byte, error) {
	if c.crashes && c.Count > 0 {
		return nil, errors.New("crash between publish and acknowledgement")
	}
	return json.Marshal(c)
}

func (c *clerk) Restore(snapshot []byte) error { return json.Unmarshal(snapshot, c) }

// fixture is a server with the streams, a bus to look at it, and a way to run a clerk.
type fixture struct {
	*testing.T
	url     string
	ctx     context.Context
	bus     *bus.Bus
	restart func() // of the server, with its data
}

func newFixture(t *testing.T) *fixture {
	config := embedded.Config{StoreDir: t.TempDir()}
	server, err := embedded.Start(config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { server.Shutdown() })
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	t.Cleanup(cancel)
	f := &fixture{T: t, url: server.URL(), ctx: ctx}
	if _, err := fmt.Sscanf(f.url, "nats://127.0.0.1:%d", &config.Port); err != nil {
		t.Fatal(f.url, err)
	}
	f.restart = func() {
		server.Shutdown()
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

func TestACrashBetweenPublishAndAcknowledgementRepeatsNothing(t *testing.T) {
	f := newFixture(t)
	aborted := f.said(events.Aborted)
	f.lose("n1")
	crashed := f.run(service.Options{Machine: &clerk{crashes: true}})
	first := f.expect(aborted, "g1")
	if err := crashed.end(); err == nil || !strings.Contains(err.Error(), "crash") {
		t.Fatalf("expected the crash, got %v", err)
	}
	again := &clerk{}
	f.run(service.Options{Machine: again})
	f.lose("n2")
	second := f.expect(aborted, "g2") // and not g1 once more
	if second.Sequence <= first.Sequence || again.Count != 2 {
		t.Errorf("count %d, g1 at %d, g2 at %d", again.Count, first.Sequence, second.Sequence)
	}
}

func TestAServiceRestartedOnItsSnapshotGoesOnWhereItWas(t *testing.T) {
	f := newFixture(t)
	aborted := f.said(events.Aborted)
	first := f.run(service.Options{Machine: &clerk{}})
	f.lose("n1")
	f.lose("n2")
	f.expect(aborted, "g1", "g2")
	if err := first.stop(); err != nil {
		t.Fatal(err)
	}
	f.lose("n3")
	restarted := &clerk{}
	second := f.run(service.Options{Machine: restarted})
	f.expect(aborted, "g3")
	if err := second.stop(); err != nil {
		t.Fatal(err)
	}
	if last := restarted.heard[len(restarted.heard)-1]; last != "n3" || len(restarted.heard) > 2 {
		t.Errorf("expected to hear n3 only (and n2 where the stop cut its acknowledgement), heard %v", restarted.heard)
	}
}

func TestAnInstanceThatWasPausedIsEndedByItsSuccessor(t *testing.T) {
	service.SetStandstill(t, 100*time.Millisecond)
	f := newFixture(t)
	aborted, leases := f.said(events.Aborted), f.said(events.LeaseTaken)
	paused := &clerk{waits: make(chan struct{})}
	address := freeAddress(t)
	old := f.run(service.Options{Machine: paused, Address: address})
	f.expect(leases, "negotiator")
	f.lose("n1")
	f.untilReadySays(address, "loop: at one thing")
	f.run(service.Options{Machine: &clerk{}})
	f.expect(leases, "negotiator")
	close(paused.waits)
	f.expect(aborted, "g1")
	if err := old.end(); !errors.Is(err, bus.ErrFenced) {
		t.Errorf("expected ErrFenced, got %v", err)
	}
	f.lose("n2")
	f.expect(aborted, "g2")
}

func TestASecondInstanceStandsByWhileTheFirstWorks(t *testing.T) {
	f := newFixture(t)
	aborted, leases := f.said(events.Aborted), f.said(events.LeaseTaken)
	first := f.run(service.Options{Machine: &clerk{}})
	f.expect(leases, "negotiator")
	f.lose("n1")
	f.expect(aborted, "g1")
	address := freeAddress(t)
	f.run(service.Options{Machine: &clerk{}, Address: address})
	f.untilReadySays(address, "standby")
	f.lose("n2")
	f.expect(aborted, "g2")
	if len(leases) != 0 {
		t.Error("the lease was taken from an instance that works")
	}
	if err := first.stop(); err != nil {
		t.Errorf("the first was ended: %v", err)
	}
	f.expect(leases, "negotiator")
	f.lose("n3")
	f.expect(aborted, "g3")
}

func TestAServiceOutlivesARestartOfTheServer(t *testing.T) {
	f := newFixture(t)
	aborted := f.said(events.Aborted)
	machine := &clerk{}
	running := f.run(service.Options{Machine: machine, TickEvery: time.Millisecond})
	f.lose("n1")
	f.expect(aborted, "g1")
	f.restart()
	f.lose("n2")
	f.expect(aborted, "g2")
	if err := running.stop(); err != nil || machine.Count != 2 {
		t.Errorf("count %d, %v", machine.Count, err)
	}
}

func TestALogThatWentBackwardsEndsTheService(t *testing.T) {
	f := newFixture(t)
	before := f.run(service.Options{Machine: &clerk{}})
	aborted := f.said(events.Aborted)
	f.lose("n1")
	f.lose("n2")
	f.expect(aborted, "g1", "g2") // so that n1 is remembered
	if err := before.stop(); err != nil {
		t.Fatal(err)
	}
	js := f.bus.JetStream()
	if err := js.DeleteStream(f.ctx, events.EventStream.Name); err != nil {
		t.Fatal(err)
	}
	if err := f.bus.Provision(f.ctx); err != nil {
		t.Fatal(err)
	}
	options := service.Options{Name: "negotiator", Bus: f.connect(), Machine: &clerk{}}
	if err := service.Run(f.ctx, options); !errors.Is(err, service.ErrLogWentBackwards) {
		t.Errorf("expected ErrLogWentBackwards, got %v", err)
	}
}

func TestTimePassesOnlyWhenTheBacklogIsHandled(t *testing.T) {
	f := newFixture(t)
	for i := range 20 {
		f.lose(fmt.Sprintf("n%d", i))
	}
	machine := &clerk{}
	inputs, handledBefore := make(chan func(time.Time) []events.Event, 1), make(chan int, 1)
	inputs <- func(time.Time) []events.Event { handledBefore <- machine.Count; return nil }
	f.run(service.Options{Machine: machine, Inputs: inputs, TickEvery: time.Microsecond})
	select {
	case count := <-handledBefore:
		if count != 20 {
			t.Errorf("a door opened after %d of 20 events", count)
		}
	case <-f.ctx.Done():
		t.Fatal("the door never opened")
	}
}

func TestAnEventWithoutSenseIsNotRetried(t *testing.T) {
	f := newFixture(t)
	aborted := f.said(events.Aborted)
	machine := &clerk{}
	running := f.run(service.Options{Machine: machine})
	f.lose("absurd")
	f.lose("n1")
	f.expect(aborted, "g1")
	if err := running.stop(); err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(machine.heard, " "); got != "absurd n1" {
		t.Errorf("heard %s", got)
	}
}

func TestOneTraceHoldsOneChange(t *testing.T) {
	f := newFixture(t)
	f.run(service.Options{Machine: &clerk{}})
	cause := f.lose("n1")
	answer := f.expect(f.said(events.Aborted), "g1")
	traceID, spanID := sha256.Sum256([]byte(cause.ID)), sha256.Sum256([]byte("negotiator|"+cause.ID))
	want := fmt.Sprintf("00-%s-%s-01", hex.EncodeToString(traceID[:16]), hex.EncodeToString(spanID[:8]))
	if answer.Traceparent != want {
		t.Errorf("traceparent %s, expected %s", answer.Traceparent, want)
	}
	if answer.Cause != cause.ID {
		t.Errorf("cause %s, expected %s", answer.Cause, cause.ID)
	}
}

func TestEachKindOfRefusalIsCountedAndQuarantinedOnce(t *testing.T) {
	f := newFixture(t)
	address := freeAddress(t)
	machine := &clerk{}
	refused, aborted := f.said(events.EventRefused), f.said(events.Aborted)
	f.run(service.Options{Machine: machine, Address: address})
	const data = `,"data":{"node":"n1","incarnation":"a","reason":"","silentSeconds":0,"failuresPerNodeSecond":0}}`
	good := `{"specversion":"1.0","id":"i1","source":"/monitor","type":"io.reknit.node.lost.v1","subject":"n1","cluster":"test"` + data
	bad := map[string]string{
		bus.Oversized:      strings.Replace(good, `"reason":""`, `"reason":"`+strings.Repeat("x", 70<<10)+`"`, 1),
		bus.Malformed:      good[1:],
		bus.UnknownVersion: strings.Replace(good, ".v1", ".v7", 1),
		bus.WrongCluster:   strings.Replace(good, `"cluster":"test"`, `"cluster":"toast"`, 1),
		bus.WrongSource:    strings.Replace(good, "/monitor", "/node/n1", 1),
		bus.Invalid:        strings.Replace(good, `"incarnation":"a"`, `"incarnation":""`, 1),
	}
	for reason, message := range bad {
		ack, err := f.bus.JetStream().Publish(f.ctx, events.EventSubject(cluster, events.NodeLost, "n1"), []byte(message))
		if err != nil {
			t.Fatal(err)
		}
		event := f.expect(refused, fmt.Sprint(ack.Sequence))
		kept, err := events.Open[events.Quarantine](event)
		if err != nil || kept.Reason != reason || kept.Bytes != len(message) || string(kept.Excerpt) != message[:min(len(message), events.QuarantineBytes)] {
			t.Errorf("%s: %v, kept %s: %s, %d bytes", reason, err, kept.Reason, kept.Detail, kept.Bytes)
		}
	}
	f.lose("n2")
	f.expect(aborted, "g1")
	if len(refused) != 0 || len(machine.heard) != 1 {
		t.Errorf("heard %v, %d more refusals", machine.heard, len(refused))
	}
	page := fetch(t, "http://"+address+"/metrics")
	for reason := range bad {
		if !counted(page, "reknit_messages_refused_total", `reason="`+reason+`"`, `service="negotiator"`) {
			t.Errorf("%s was not counted", reason)
		}
	}
}

func TestAServiceSaysWhetherItIsReady(t *testing.T) {
	f := newFixture(t)
	address := freeAddress(t)
	if err := service.Healthcheck(f.ctx, address); err == nil {
		t.Error("nobody is there yet")
	}
	aborted := f.said(events.Aborted)
	f.run(service.Options{Machine: &clerk{}, Address: address})
	f.lose("n1")
	f.expect(aborted, "g1")
	for err := service.Healthcheck(f.ctx, address); err != nil; err = service.Healthcheck(f.ctx, address) {
		if f.ctx.Err() != nil {
			t.Fatal(err)
		}
	}
	if err := f.bus.JetStream().DeleteObjectStore(f.ctx, events.ShardBucket); err != nil {
		t.Fatal(err)
	}
	if page := fetch(t, "http://"+address+"/readyz"); !strings.Contains(page, events.ShardBucket) {
		t.Errorf("expected the missing bucket's name, got %q", page)
	}
	if page := fetch(t, "http://"+address+"/healthz"); page != "ok\n" {
		t.Errorf("the process lives, got %q", page)
	}
}

func TestVariablesHaveUnitAndReason(t *testing.T) {
	type config struct{ service.Common }
	all := service.Variables(config{})
	if len(all) != 4 {
		t.Errorf("expected the four common variables, got %v", all)
	}
	for _, v := range all {
		if v.Unit == "" || v.Reason == "" {
			t.Errorf("%s: expected a unit and a reason", v.Name)
		}
	}
}

// unacknowledged returns how many messages the negotiator has and has not acknowledged.
func (f *fixture) unacknowledged() int {
	consumer, err := f.bus.JetStream().Consumer(f.ctx, events.EventStream.Name, cluster+"-negotiator")
	if err != nil {
		f.Fatal(err)
	}
	return consumer.CachedInfo().NumAckPending
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
	said := ""
	for ; !strings.Contains(said, text); said = ready(address) {
		if f.ctx.Err() != nil {
			f.Fatalf("expected /readyz to say %q, got %q", text, said)
		}
	}
}

func ready(address string) string {
	response, err := http.Get("http://" + address + "/readyz")
	if err != nil {
		return err.Error()
	}
	defer response.Body.Close()
	body, _ := io.ReadAll(response.Body)
	return string(body)
}

func freeAddress(t *testing.T) string {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	return listener.Addr().String()
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
