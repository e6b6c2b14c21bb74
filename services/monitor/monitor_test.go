package monitor_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/caarlos0/env/v11"
	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"github.com/reknit/reknit/events"
	"github.com/reknit/reknit/services/monitor"
	"github.com/reknit/reknit/shared/bus"
	"github.com/reknit/reknit/shared/embedded"
	"github.com/reknit/reknit/shared/service"
)

const cluster = "test"

// patience is how long a test waits for what must happen; nothing takes that long.
const patience = 2 * time.Minute

func TestMain(m *testing.M) {
	slog.SetLogLoggerLevel(slog.LevelError)
	os.Exit(m.Run())
}

// node is a process that takes part: a connection that sends heartbeats and answers probes.
type node struct {
	name   string
	bus    *bus.Bus
	number uint64
}

func start(ctx context.Context, t testing.TB, url, name string) *node {
	t.Helper()
	b, err := bus.Connect(ctx, bus.Config{URL: url, Name: name, Cluster: cluster})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.Close)
	n := &node{name: name, bus: b}
	_, err = b.Conn().Subscribe(events.ProbeSubject(cluster, name), func(message *nats.Msg) {
		var probe events.Probe
		asked := strings.TrimPrefix(message.Subject, strings.TrimSuffix(events.ProbeSubject(cluster, "n"), "n"))
		answer := events.ProbeAnswer{Node: asked, Incarnation: "a"}
		if err := json.Unmarshal(message.Data, &probe); err != nil {
			answer.Error = err.Error()
		} else if probe.Target != "" {
			answer.Measured = &events.Measurement{From: asked, To: probe.Target, RoundTripSeconds: 0.001,
				BandwidthBytesPerSecond: 1e9}
		}
		data, _ := json.Marshal(answer)
		_ = message.Respond(data)
	})
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func (n *node) pulse(t testing.TB, suspicions ...events.Suspicion) {
	n.number++
	data, err := json.Marshal(events.Pulse{Node: n.name, Incarnation: "a", Number: n.number, Suspicions: suspicions})
	if err == nil {
		err = n.bus.Conn().Publish(events.PulseSubject(cluster, n.name), data)
	}
	if err != nil {
		t.Error(err)
	}
}

func publish(ctx context.Context, t testing.TB, b *bus.Bus, source string, kind events.Kind, subject string, payload events.Payload) {
	t.Helper()
	speaker := events.Speaker{Source: source, Cluster: cluster}
	if _, err := b.Publish(ctx, speaker.First(time.Now(), "test", kind, subject, payload)); err != nil {
		t.Fatal(err)
	}
}

// deaths are what shows of the death of a node, and how the monitor hears of it.
var deaths = map[string]func(t testing.TB, ctx context.Context, victim, witness *node){
	"reset connection": func(t testing.TB, _ context.Context, victim, witness *node) { // to a peer, and to the hub
		victim.bus.Conn().Close()
		witness.pulse(t, events.Suspicion{Node: victim.name, Refused: true, Reason: "connection reset by peer"})
	},
	"killed by signal 9": func(t testing.TB, ctx context.Context, victim, _ *node) { // to the agent that was beside the trainer
		publish(ctx, t, victim.bus, events.NodeSource(victim.name), events.NodeExited, victim.name,
			&events.Exit{Node: victim.name, Incarnation: "a", Generation: 1, Reason: "killed by signal 9"})
	},
}

// untilLost returns what the monitor says of a node once it is lost.
func untilLost(t testing.TB, heard <-chan events.Event, victim *node) (said events.NodeState) {
	t.Helper()
	for event := (events.Event{}); event.Kind != events.NodeLost || event.Subject != victim.name; {
		event = wait(t, heard, patience)
		if err := json.Unmarshal(event.Data, &said); err != nil {
			t.Fatal(err)
		}
	}
	return said
}

// The monitor runs on a real server, with nodes that are connections.
func TestADeathThatShowsIsALossForThatAndNotForSilence(t *testing.T) {
	for reason, dies := range deaths {
		t.Run(reason, func(t *testing.T) {
			ctx, nodes, heard := watched(t)
			for _, victim := range nodes[1:] {
				dies(t, ctx, victim, nodes[0])
				if said := untilLost(t, heard, victim); !strings.Contains(said.Reason, reason) {
					t.Errorf("%s is lost for %q, expected %q", victim.name, said.Reason, reason)
				}
			}
		})
	}
}

// BenchmarkADeathThatShows expects a loss within fifty milliseconds: no death waits for a timeout. The best of five is judged, because other
// work on the machine may delay any one.
func BenchmarkADeathThatShows(b *testing.B) {
	for reason, dies := range deaths {
		b.Run(reason, func(b *testing.B) {
			ctx, nodes, heard := watched(b)
			best := time.Hour
			for _, victim := range nodes[1:] {
				died := time.Now()
				dies(b, ctx, victim, nodes[0])
				untilLost(b, heard, victim)
				best = min(best, time.Since(died))
			}
			b.ReportMetric(float64(best.Microseconds())/1e3, "ms/loss")
			if best > 50*time.Millisecond {
				b.Errorf("from the death to node.lost: expected 50 ms at most, the best was %v", best)
			}
		})
	}
}

// A server that is provisioned grants a connection 256 subscriptions, the one here 40. With one for each probe, those of a crowd
// that were more were never answered, and their nodes were lost.
func TestOfACrowdThatFallsSilentAtOnceNobodyWhoAnswersIsLost(t *testing.T) {
	const crowd = 300
	hub, err := server.NewServer(&server.Options{Host: "127.0.0.1", Port: server.RANDOM_PORT, NoLog: true, NoSigs: true,
		JetStream: true, JetStreamMaxStore: 1 << 40, StoreDir: t.TempDir(), MaxSubs: 40})
	if err != nil {
		t.Fatal(err)
	}
	hub.Start()
	t.Cleanup(hub.Shutdown)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	first := start(ctx, t, hub.ClientURL(), "*") // whose answers are for all
	nodes := []*node{}
	for i := range crowd {
		nodes = append(nodes, &node{name: fmt.Sprintf("n%d", i), bus: first.bus})
	}
	if err := first.bus.Provision(ctx); err != nil {
		t.Fatal(err)
	}
	heard := follow(ctx, t, first.bus)
	run(ctx, t, hub.ClientURL())
	join(ctx, t, nodes)
	for range 20 {
		for _, n := range nodes {
			n.pulse(t)
		}
		time.Sleep(250 * time.Millisecond)
	}
	for silent := time.Now(); time.Since(silent) < 8*time.Second; {
		for _, n := range nodes[crowd/2:] {
			n.pulse(t)
		}
		if event := wait(t, heard, 250*time.Millisecond); event.Kind == events.NodeLost {
			t.Fatalf("%s is lost after %v of silence, and answers probes", event.Subject, time.Since(silent))
		}
	}
}

// watched returns six nodes that a monitor watches, and what it says.
func watched(t testing.TB) (ctx context.Context, nodes []*node, heard <-chan events.Event) {
	t.Helper()
	hub, err := embedded.Start(embedded.Config{StoreDir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(hub.Shutdown)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	for i := range 6 {
		nodes = append(nodes, start(ctx, t, hub.URL(), fmt.Sprintf("n%d", i)))
	}
	if err := nodes[0].bus.Provision(ctx); err != nil {
		t.Fatal(err)
	}
	heard = follow(ctx, t, nodes[0].bus)
	run(ctx, t, hub.URL())
	join(ctx, t, nodes)
	for range 12 { // the first direction measured shows that the monitor knows the nodes
		for _, n := range nodes {
			n.pulse(t)
		}
		if event := wait(t, heard, 250*time.Millisecond); event.Kind == events.LinkMeasured {
			break
		}
	}
	return ctx, nodes, heard
}

func follow(ctx context.Context, t testing.TB, b *bus.Bus) <-chan events.Event {
	t.Helper()
	heard := make(chan events.Event, 256)
	var subjects []string
	for _, kind := range []events.Kind{events.NodeLost, events.LinkMeasured} {
		subjects = append(subjects, events.EventSubject(cluster, kind, "*"))
	}
	stop, err := b.Follow(ctx, events.EventStream, subjects, bus.All, func(event events.Event) { heard <- event })
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(stop)
	return heard
}

// run starts the monitor with the defaults of its environment.
func run(ctx context.Context, t testing.TB, url string) {
	t.Helper()
	var config monitor.Config
	options := env.Options{Environment: map[string]string{
		"REKNIT_NATS_URL": url, "REKNIT_CLUSTER": cluster, "REKNIT_LOG_LEVEL": "ERROR", "REKNIT_LINK_PROBE_EVERY": "100ms",
	}}
	if err := env.ParseWithOptions(&config, options); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan error, 1)
	go func() { done <- monitor.Run(ctx, config) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

func join(ctx context.Context, t testing.TB, nodes []*node) {
	t.Helper()
	job := events.Job{Digest: events.Digest(nil), Layers: []events.LayerProfile{{ParameterBytes: 1}}, GlobalBatch: 1,
		MicroBatch: 1}
	opening := &events.Opening{Negotiation: "g1", Generation: 1,
		Changes: []events.Change{{Kind: events.ChangeJoin, Node: "n0"}}}
	for _, n := range nodes {
		address := n.name + ":1"
		publish(ctx, t, n.bus, events.NodeSource(n.name), events.JoinRequested, n.name,
			&events.Join{Node: n.name, Incarnation: "a", Address: address, MemoryBytes: 1, Job: job})
		opening.Members = append(opening.Members, events.Member{Node: n.name, Incarnation: "a", Address: address})
	}
	b := nodes[0].bus
	publish(ctx, t, b, "/negotiator", events.NegotiationOpened, "g1", opening)
	publish(ctx, t, b, "/negotiator", events.Committed, "g1",
		&events.Commitment{Negotiation: "g1", Generation: 1, PlanDigest: events.Digest(nil)})
}

// wait returns the next event, or none in time.
func wait(t testing.TB, heard <-chan events.Event, timeout time.Duration) events.Event {
	t.Helper()
	select {
	case event := <-heard:
		return event
	case <-time.After(timeout):
		if timeout > time.Second {
			t.Fatalf("nothing heard for %v", timeout)
		}
		return events.Event{}
	}
}

func TestABadSettingIsNamed(t *testing.T) {
	for variable, value := range map[string]string{
		"REKNIT_DETECTOR_PAUSE": "-1s", "REKNIT_DETECTOR_GREATEST": "1s", "REKNIT_LINK_PROBE_EVERY": "-1s",
		"REKNIT_NODE_HOURS_PER_FAILURE": "-3", "REKNIT_PAGE_TOKEN": "too short",
	} {
		if err := service.Read(new(monitor.Config), map[string]string{variable: value}); err == nil || !strings.Contains(err.Error(), variable) {
			t.Errorf("%s=%s: expected an error that names it, got %v", variable, value, err)
		}
	}
}
