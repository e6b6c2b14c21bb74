package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/reknit/reknit/events"
	"github.com/reknit/reknit/shared/bus"
)

const (
	connections = 8                     // of all nodes together
	busyEvents  = 100                   // a second, of two measurements each, that the monitor hears and says beside the heartbeats
	portion     = 20 * time.Millisecond // in which heartbeats are sent at once
	mostStart   = 5 * time.Minute
	health      = "127.0.0.1:14723"
	warm        = 10 // seconds before what is measured
)

// throughput measures what the heartbeats of so many nodes cost a monitor, with its log busy beside them, each a process
// of its own.
func throughput(programs string, nodes, seconds int) (err error) {
	directory, err := os.MkdirTemp("", "bench-monitor-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(directory)) }()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	const url = "nats://127.0.0.1:14722"
	server, err := start(ctx, directory, filepath.Join(programs, "reknit-nats"), "-a", "127.0.0.1", "-p", "14722", "-js",
		"-sd", directory)
	if err != nil {
		return err
	}
	f, err := newFleet(ctx, url, nodes)
	if err != nil {
		return err
	}
	defer f.close()
	if err := f.form(ctx); err != nil {
		return err
	}
	go f.beat(ctx)
	monitor, err := start(ctx, directory, filepath.Join(programs, "reknit-monitor"), "REKNIT_NATS_URL="+url,
		"REKNIT_CLUSTER="+cluster, "REKNIT_HTTP_ADDRESS="+health)
	if err != nil {
		return err
	}
	if err := untilReady(ctx); err != nil {
		return err
	}
	go f.keepBusy(ctx)
	time.Sleep(warm * time.Second)
	if err := f.measure(monitor, server, seconds); err != nil {
		return err
	}
	return f.silence()
}

// untilReady waits until the monitor has handled what is in the log.
func untilReady(ctx context.Context) error {
	for end := time.Now().Add(mostStart); time.Now().Before(end) && ctx.Err() == nil; time.Sleep(100 * time.Millisecond) {
		response, err := http.Get("http://" + health + "/readyz")
		if err != nil {
			continue
		}
		response.Body.Close()
		if response.StatusCode == http.StatusOK {
			return nil
		}
	}
	return fmt.Errorf("the monitor was not ready within %v", mostStart)
}

// start starts a process that ends with ctx; arguments of the form NAME=VALUE are its environment.
func start(ctx context.Context, directory, program string, arguments ...string) (*exec.Cmd, error) {
	command := exec.CommandContext(ctx, program)
	command.Env = os.Environ()
	for _, argument := range arguments {
		if strings.HasPrefix(argument, "REKNIT_") {
			command.Env = append(command.Env, argument)
		} else {
			command.Args = append(command.Args, argument)
		}
	}
	log, err := os.Create(filepath.Join(directory, filepath.Base(program)+".log"))
	if err != nil {
		return nil, err
	}
	defer log.Close()
	command.Stderr = log
	return command, command.Start()
}

// fleet is nodes that send heartbeats and answer probes.
type fleet struct {
	names []string
	buses []*bus.Bus
	sent  atomic.Int64
	heard atomic.Int64 // verdicts
	mute  atomic.Int64 // nodes, the first ones, that send no heartbeat
	found chan events.Event
}

func newFleet(ctx context.Context, url string, nodes int) (*fleet, error) {
	f := &fleet{found: make(chan events.Event, 1)}
	for i := range nodes {
		f.names = append(f.names, fmt.Sprintf("n%05d", i))
	}
	for i := range connections {
		b, err := bus.Connect(ctx, bus.Config{URL: url, Name: fmt.Sprint("nodes-", i), Cluster: cluster})
		if err != nil {
			return nil, err
		}
		f.buses = append(f.buses, b)
	}
	first := f.buses[0]
	if err := first.Provision(ctx); err != nil {
		return nil, err
	}
	var subjects []string
	for _, kind := range []events.Kind{events.NodeSuspected, events.NodeLost, events.SiteSuspected} {
		subjects = append(subjects, events.EventSubject(cluster, kind, "*"))
	}
	_, err := first.Follow(ctx, events.EventStream, subjects, bus.New, func(event events.Event) {
		f.heard.Add(1)
		select {
		case f.found <- event:
		default:
		}
	})
	if err != nil {
		return nil, err
	}
	_, err = first.Conn().Subscribe(events.ProbeSubject(cluster, "*"), f.answer)
	return f, err
}

func (f *fleet) close() {
	for _, b := range f.buses {
		b.Close()
	}
}

func (f *fleet) answer(message *nats.Msg) {
	node := message.Subject[strings.LastIndexByte(message.Subject, '.')+1:]
	data, err := json.Marshal(events.ProbeAnswer{Node: node, Incarnation: "i0"})
	if err == nil {
		_ = message.Respond(data) // without an answer the probe is made again
	}
}

// form has all nodes be members, and opens a negotiation for which they measure links.
func (f *fleet) form(ctx context.Context) error {
	opening := &events.Opening{Negotiation: "g1", Generation: 1, Changes: []events.Change{{Kind: events.ChangeJoin, Node: "x"}}}
	for i, name := range f.names {
		join := &events.Join{Node: name, Incarnation: "i0", Address: name + ":1", MemoryBytes: 1, Job: job}
		if err := f.say(ctx, i, "/node/"+name, events.JoinRequested, name, join); err != nil {
			return err
		}
		opening.Members = append(opening.Members, events.Member{Node: name, Incarnation: "i0", Address: name + ":1"})
	}
	if err := f.say(ctx, 0, "/negotiator", events.NegotiationOpened, "g1", opening); err != nil {
		return err
	}
	commitment := &events.Commitment{Negotiation: "g1", Generation: 1, PlanDigest: events.Digest(nil)}
	if err := f.say(ctx, 0, "/negotiator", events.Committed, "g1", commitment); err != nil {
		return err
	}
	opening.Negotiation, opening.Generation = "g2", 2
	return f.say(ctx, 0, "/negotiator", events.NegotiationOpened, "g2", opening)
}

func (f *fleet) say(ctx context.Context, by int, source string, kind events.Kind, subject string, payload events.Payload) error {
	now := time.Now()
	speaker := events.Speaker{Source: source, Cluster: cluster}
	_, err := f.buses[by%connections].Publish(ctx, speaker.First(now, fmt.Sprint(now.UnixNano()), kind, subject, payload))
	return err
}

// beat sends a heartbeat of each node a second, spread over it.
func (f *fleet) beat(ctx context.Context) {
	ticker := time.NewTicker(portion)
	defer ticker.Stop()
	began, numbers, next := time.Now(), make([]uint64, len(f.names)), 0
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		for due := int(time.Since(began).Seconds() / beatSeconds * float64(len(f.names))); next < due; next++ {
			i := next % len(f.names)
			if i < int(f.mute.Load()) {
				continue
			}
			numbers[i]++
			data, err := json.Marshal(events.Pulse{
				Node: f.names[i], Incarnation: "i0", Number: numbers[i], Generation: 1, Step: numbers[i], StepSeconds: 1,
			})
			if err == nil && f.buses[i%connections].Conn().Publish(events.PulseSubject(cluster, f.names[i]), data) == nil {
				f.sent.Add(1)
			}
		}
	}
}

// keepBusy tells of measurements that change by half each time. They count as said.
func (f *fleet) keepBusy(ctx context.Context) {
	ticker := time.NewTicker(time.Second / busyEvents)
	defer ticker.Stop()
	for i := 0; ; i++ {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		from, bandwidth := f.names[i%64], 1e8*float64(1+i/64%2)
		told := &events.Measured{Negotiation: "g2"}
		for j := range 2 {
			told.Measurements = append(told.Measurements, events.Measurement{
				From: from, To: f.names[100+j], RoundTripSeconds: 1e-3, BandwidthBytesPerSecond: bandwidth,
			})
		}
		if err := f.say(ctx, 1, "/negotiator", events.LinksMeasured, "g2-"+from, told); err != nil && ctx.Err() == nil {
			fmt.Fprintln(os.Stderr, "measurements:", err)
		}
	}
}

// measure tells what the processes use of a core.
func (f *fleet) measure(monitor, server *exec.Cmd, seconds int) error {
	var used [2][2]float64
	var sent [2]int64
	for i := range 2 {
		if i > 0 {
			time.Sleep(time.Duration(seconds) * time.Second)
		}
		for j, process := range []*exec.Cmd{monitor, server} {
			var err error
			if used[i][j], err = processorSeconds(process.Process.Pid); err != nil {
				return err
			}
		}
		sent[i] = f.sent.Load()
	}
	share := func(j int) float64 { return 100 * (used[1][j] - used[0][j]) / float64(seconds) }
	fmt.Printf("%d nodes, %.0f heartbeats/s, %d events/s heard: monitor %.0f %% of a core, NATS %.0f %%; %d verdicts\n",
		len(f.names), float64(sent[1]-sent[0])/float64(seconds), busyEvents, share(0), share(1), f.heard.Load())
	return nil
}

// silence tells after how long a node is suspected that falls silent, with all else as it was.
func (f *fleet) silence() error {
	f.mute.Store(1)
	began := time.Now()
	select {
	case event := <-f.found:
		fmt.Printf("%s of %s %.1f s after its last heartbeat but one\n", event.Kind, event.Subject, time.Since(began).Seconds())
		return nil
	case <-time.After(mostStart):
		return errors.New("a node that fell silent was not suspected")
	}
}

// processorSeconds reads what a process has used from /proc, which only Linux has.
func processorSeconds(pid int) (float64, error) {
	const ticksPerSecond, behindName = 100, 11
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, err
	}
	fields := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
	user, _ := strconv.ParseFloat(fields[behindName], 64)
	system, _ := strconv.ParseFloat(fields[behindName+1], 64)
	return (user + system) / ticksPerSecond, nil
}
