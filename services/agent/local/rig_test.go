package local

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/reknit/reknit/events"
	"github.com/reknit/reknit/shared/bus"
	"github.com/reknit/reknit/shared/embedded"
)

// patience is how long a test waits for what must happen; nothing takes that long.
const patience = 2 * time.Minute

func TestMain(m *testing.M) {
	slog.SetDefault(slog.New(slog.NewTextHandler(io.Discard, nil)))
	os.Exit(m.Run())
}

// rig is an agent, and a cluster of which the test plays the negotiator.
type rig struct {
	*testing.T
	config  Config
	server  *Server
	socket  string
	state   string // where the files are
	away    func() // ends the hub
	bus     *bus.Bus
	said    chan events.Event
	speaker events.Speaker
	plans   uint64 // committed
	parent  string // digest of the last
}

func newRig(t *testing.T) *rig {
	hub, err := embedded.Start(embedded.Config{StoreDir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(hub.Shutdown)
	r := &rig{
		T: t, state: t.TempDir(), away: hub.Shutdown, said: make(chan events.Event, 1024),
		speaker: events.Speaker{Source: "/negotiator", Cluster: "c"},
	}
	r.bus, err = bus.Connect(t.Context(), bus.Config{URL: hub.URL(), Name: "test", Cluster: "c"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.bus.Close)
	if err := r.bus.Provision(t.Context()); err != nil {
		t.Fatal(err)
	}
	all := []string{"reknit.event.c.>"}
	stop, err := r.bus.Follow(t.Context(), events.EventStream, all, bus.New, func(event events.Event) { r.said <- event })
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(stop)
	dir, err := os.MkdirTemp("", "rig-") //nolint:usetesting // a socket's path must be short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	r.socket = filepath.Join(dir, "agent.sock")
	r.config = Config{URL: hub.URL(), Cluster: "c", Node: "n1", Listen: "127.0.0.1:0", StateDir: r.state}
	r.serve()
	t.Cleanup(func() { r.server.Close() })
	return r
}

func (r *rig) serve() {
	r.Helper()
	var err error
	if r.server, err = Serve(r.Context(), r.config, r.socket); err != nil {
		r.Fatal(err)
	}
}

// await returns the payload of the next event of a kind.
func await[T any, P interface {
	*T
	events.Payload
}](r *rig, kind events.Kind) T {
	r.Helper()
	for deadline := time.After(patience); ; {
		select {
		case event := <-r.said:
			if event.Kind != kind {
				continue
			}
			payload, err := events.Open[T, P](event)
			if err != nil {
				r.Fatal(err)
			}
			return payload
		case <-deadline:
			r.Fatalf("no %s within %v", kind, patience)
		}
	}
}

// commit puts members, each a pipeline of its own, to work from a step on.
func (r *rig) commit(step uint64, members ...events.Member) {
	r.Helper()
	var pipelines []events.Pipeline
	for _, member := range members {
		pipelines = append(pipelines, events.Pipeline{
			MicroBatches: 8, Stages: []events.Stage{{Node: member.Node, Layers: events.Range{First: 0, End: 2}}},
		})
	}
	r.commitPipelines(step, members, pipelines...)
}

// commitPipelines puts members to work in pipelines from a step on.
func (r *rig) commitPipelines(step uint64, members []events.Member, pipelines ...events.Pipeline) {
	r.Helper()
	r.plans++
	plan := events.Plan{
		Cluster: "c", Generation: r.plans, Parent: r.parent, Policy: "test", ResumeStep: step, Nodes: members,
		Pipelines: pipelines,
		Data:      events.Data{GlobalBatch: 8 * len(pipelines), MicroBatch: 1, ConsumedSamples: step * 8},
		Migration: events.Migration{ShardBytes: 1 << 20}, LearningRateScale: 1,
	}
	event := r.speaker.First(time.Now(), "test", events.PlanCommitted, itoa(r.plans), &plan)
	if _, err := r.bus.Publish(r.Context(), event); err != nil {
		r.Fatal(err)
	}
	r.parent = events.Digest(event.Data)
}

func itoa(number uint64) string { text, _ := json.Marshal(number); return string(text) }

// abandon opens a negotiation for which all give up their step.
func (r *rig) abandon(members ...events.Member) {
	r.Helper()
	opening := events.Opening{
		Negotiation: "abandoning-" + itoa(r.plans), Generation: r.plans + 1, Abandon: true, Members: members,
		Changes: []events.Change{{Kind: events.ChangeFailure, Node: "n9"}},
	}
	event := r.speaker.First(time.Now(), "test", events.NegotiationOpened, opening.Negotiation, &opening)
	if _, err := r.bus.Publish(r.Context(), event); err != nil {
		r.Fatal(err)
	}
}

// client is a trainer's end of the socket.
type client struct {
	*rig
	http    *http.Client
	session string
	dir     string
	member  events.Member
	past    *events.Trained // as its join says
	lines   *bufio.Scanner
	stream  io.Closer
}

// call makes a call and returns its status and answer.
func (r *rig) call(client *http.Client, method, path string, body []byte) (status int, answer []byte) {
	r.Helper()
	request, err := http.NewRequestWithContext(r.Context(), method, "http://agent"+path, bytes.NewReader(body))
	if err != nil {
		r.Fatal(err)
	}
	response, err := client.Do(request)
	if err != nil {
		r.Fatal(err)
	}
	defer response.Body.Close()
	answer, err = io.ReadAll(response.Body)
	if err != nil {
		r.Fatal(err)
	}
	return response.StatusCode, answer
}

func (r *rig) dial() *http.Client {
	transport := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", r.socket)
	}}
	r.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport}
}

const usualJoin = `{"units":[4096,4096],"batch":8,"microBatch":1,"digest":"test"}`

// join joins and opens the session.
func (r *rig) join(body string) *client {
	r.Helper()
	client := r.dial()
	status, answer := r.call(client, "POST", "/v1/join", []byte(body))
	if status != http.StatusOK {
		r.Fatalf("join %s: got %d %s", body, status, answer)
	}
	return r.open(client, answer)
}

// open opens the session that a join was answered with.
func (r *rig) open(dialled *http.Client, answer []byte) *client {
	r.Helper()
	var joined Joined
	if err := json.Unmarshal(answer, &joined); err != nil {
		r.Fatal(err)
	}
	c := &client{rig: r, http: dialled, session: joined.Session, dir: joined.Dir}
	join := await[events.Join](r, events.JoinRequested)
	c.member = events.Member{Node: join.Node, Incarnation: join.Incarnation, Address: join.Address, ShardAddress: join.ShardAddress}
	c.past = join.Trained
	response, err := c.http.Get("http://agent" + c.path("/v1/session"))
	if err != nil {
		r.Fatal(err)
	}
	c.lines, c.stream = bufio.NewScanner(response.Body), response.Body
	r.Cleanup(func() { response.Body.Close() })
	c.line()
	return c
}

// line returns the next line of the session.
func (c *client) line() (said map[string]any) {
	c.Helper()
	if !c.lines.Scan() {
		c.Fatal("the session ended: ", c.lines.Err())
	}
	if err := json.Unmarshal(c.lines.Bytes(), &said); err != nil {
		c.Fatal(err)
	}
	return said
}

func (c *client) path(path string) string {
	if c.session == "" {
		return path
	}
	separator := "?"
	if bytes.ContainsRune([]byte(path), '?') {
		separator = "&"
	}
	return path + separator + "session=" + c.session
}

// expect makes a call that must be answered with a status, and decodes the answer.
func (c *client) expect(status int, into any, method, path, body string) {
	c.Helper()
	got, answer := c.call(c.http, method, c.path(path), []byte(body))
	if got != status {
		c.Fatalf("%s %s %s: expected %d, got %d %s", method, path, body, status, got, answer)
	}
	if into != nil {
		if err := json.Unmarshal(answer, into); err != nil {
			c.Fatalf("%s %s: %v: %s", method, path, err, answer)
		}
	}
}

// next reports and returns the next order, which must be of a kind.
func (c *client) next(kind string, report Report) Order {
	c.Helper()
	body, err := json.Marshal(report)
	if err != nil {
		c.Fatal(err)
	}
	var order Order
	c.expect(http.StatusOK, &order, "POST", "/v1/next", string(body))
	if order.Order != kind {
		c.Fatalf("expected the order %s, got %+v", kind, order)
	}
	return order
}

// train joins a cluster of one, and returns the order of its first step.
func (r *rig) train() (*client, Order) {
	r.Helper()
	c := r.join(usualJoin)
	r.commit(0, c.member)
	adopt := c.next(orderAdopt, Report{})
	return c, c.next(orderStep, Report{Order: adopt.ID})
}
