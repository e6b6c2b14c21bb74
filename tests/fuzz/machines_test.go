package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/reknit/reknit/events"
	agent "github.com/reknit/reknit/services/agent/machine"
	monitor "github.com/reknit/reknit/services/monitor/machine"
	negotiator "github.com/reknit/reknit/services/negotiator/machine"
	planner "github.com/reknit/reknit/services/planner/machine"
	restorer "github.com/reknit/reknit/services/restorer/machine"
	"github.com/reknit/reknit/shared/service"
	"github.com/reknit/reknit/tests/simulation/world"
)

const cluster = "opticks" // of the simulated world

// lived is the log of a cluster that forms, loses a node, is left by another and joined by a third.
func lived(f *testing.F) (log []events.Event) {
	w := world.New(world.Cluster{Seed: 1, Nodes: 4, Layers: 4, Stages: 2, Snapshots: 8}, false)
	w.Heard = func(event events.Event) { log = append(log, event) }
	w.Run(5 * time.Second)
	for _, fault := range []string{"kill n2", "leave n3", "return n3", "disconnect n1 n4"} {
		if err := w.Do(fault); err != nil {
			f.Fatal(err)
		}
		w.Run(10 * time.Second)
	}
	if len(log) < 100 {
		f.Fatalf("%d events, expected the story of a cluster", len(log))
	}
	return log
}

// exampleOf are the payloads of a kind's examples.
func exampleOf(f *testing.F, kind events.Kind) (payloads [][]byte) {
	files, err := filepath.Glob("../../events/examples/" + string(kind) + ".v1*.json")
	if err != nil || len(files) == 0 {
		f.Fatal(kind, files, err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		var event struct{ Data json.RawMessage }
		if err == nil {
			err = json.Unmarshal(text, &event)
		}
		if err != nil {
			f.Fatal(err)
		}
		payloads = append(payloads, event.Data)
	}
	return payloads
}

// spoken is an event of a kind with any payload, from who may say it. It is false where the bus would refuse it.
func spoken(kind events.Kind, data []byte, log []events.Event) (events.Event, bool) {
	last := log[len(log)-1]
	event := events.Event{ID: "spoken", Kind: kind, Subject: "n1", Cluster: cluster, Data: data, Time: last.Logged,
		Logged: last.Logged.Add(time.Millisecond), Sequence: last.Sequence + 1}
	var named struct{ Node string }
	if json.Unmarshal(data, &named) == nil && events.Token(named.Node) {
		event.Subject = named.Node
	}
	row, _ := kind.Row()
	if event.Source = "/" + row.SaidBy[0]; row.SaidBy[0] == "node" {
		event.Source = events.NodeSource(event.Subject)
	}
	_, err := event.Read()
	return event, err == nil
}

// fuzzMachine has a machine hear any event that the bus lets through, at each point of its life. It goes on, says what may
// travel, and remembers what it can read again.
func fuzzMachine(f *testing.F, fresh func() service.Machine) {
	log, kinds := lived(f), fresh().Hears()
	before := memories(f, fresh(), log)
	for i, kind := range kinds {
		for _, data := range exampleOf(f, kind) {
			f.Add(uint(len(before)-1), uint(i), data)
		}
	}
	for i, event := range log {
		if which := slices.Index(kinds, event.Kind); which >= 0 && i%4 == 0 {
			f.Add(uint(i), uint(which), []byte(event.Data))
		}
	}
	f.Fuzz(func(t *testing.T, when, which uint, data []byte) {
		kind := kinds[which%uint(len(kinds))]
		event, ok := spoken(kind, data, log)
		if !ok {
			return
		}
		machine := fresh()
		if err := machine.Restore(before[when%uint(len(before))]); err != nil {
			t.Fatal(err)
		}
		said, err := machine.Handle(event)
		if err != nil {
			t.Fatalf("%s: %v", kind, err)
		}
		for _, later := range []time.Duration{0, time.Second, time.Hour} {
			said = append(said, machine.Tick(event.Logged.Add(later))...)
		}
		for _, event := range said {
			if _, err := event.Read(); err != nil {
				t.Errorf("it says what may not travel: %v\n%s", err, event.Data)
			}
		}
		mustRemember(t, machine, fresh())
	})
}

// memories are those of a machine behind each event of a log.
func memories(f *testing.F, machine service.Machine, log []events.Event) (all [][]byte) {
	for _, event := range log {
		if slices.Contains(machine.Hears(), event.Kind) {
			if _, err := machine.Handle(event); err != nil {
				f.Fatal(err)
			}
		}
		machine.Tick(event.Logged)
		memory, err := machine.Snapshot()
		if err != nil {
			f.Fatal(err)
		}
		all = append(all, memory)
	}
	return all
}

func mustRemember(t *testing.T, machine, again service.Machine) {
	t.Helper()
	memory, err := machine.Snapshot()
	if err != nil {
		t.Fatal(err)
	}
	if err := again.Restore(memory); err != nil {
		t.Fatalf("it cannot read what it remembers: %v\n%s", err, memory)
	}
	if back, err := again.Snapshot(); err != nil || !bytes.Equal(back, memory) {
		t.Errorf("%s came back as %s, %v", memory, back, err)
	}
}

// fuzzMemory has a machine read any memory: it cannot, or remembers the same from then on.
func fuzzMemory(f *testing.F, fresh func() service.Machine) {
	for i, memory := range memories(f, fresh(), lived(f)) {
		if i%40 == 0 {
			f.Add(memory)
		}
	}
	f.Fuzz(func(t *testing.T, memory []byte) {
		machine := fresh()
		if machine.Restore(memory) == nil {
			mustRemember(t, machine, fresh())
		}
	})
}

func aMonitor() service.Machine { return monitor.New(monitor.Defaults(cluster)) }

func aNegotiator() service.Machine {
	return negotiator.New(negotiator.Settings{Cluster: cluster, StartNodes: 4, AnswerTimeout: 5 * time.Second,
		TransferTime: time.Minute, PreCopySteps: 1, FailuresPrior: 1e-6, AttemptsLimit: 3, HoldTime: 30 * time.Second})
}

func aPlanner() service.Machine {
	return planner.New(planner.Settings{Cluster: cluster, MinReplicas: 2, SwitchSeconds: 0.05})
}

func aRestorer() service.Machine { return restorer.New(cluster, restorer.Settings{}) }

func FuzzMonitorHears(f *testing.F)    { fuzzMachine(f, aMonitor) }
func FuzzNegotiatorHears(f *testing.F) { fuzzMachine(f, aNegotiator) }
func FuzzPlannerHears(f *testing.F)    { fuzzMachine(f, aPlanner) }
func FuzzRestorerHears(f *testing.F)   { fuzzMachine(f, aRestorer) }

func FuzzMonitorMemory(f *testing.F)    { fuzzMemory(f, aMonitor) }
func FuzzNegotiatorMemory(f *testing.F) { fuzzMemory(f, aNegotiator) }
func FuzzRestorerMemory(f *testing.F)   { fuzzMemory(f, aRestorer) }

// FuzzAgentHears has the machine beside a trainer hear any event that the bus lets through, when it trains.
func FuzzAgentHears(f *testing.F) {
	log, first := lived(f), events.Join{}
	for _, event := range log {
		if event.Kind == events.JoinRequested && event.Subject == "n1" && first.Node == "" {
			first, _ = events.Open[events.Join](event) // the simulator lets nothing else pass
		}
	}
	fresh := func() *agent.Machine {
		return agent.New(agent.Settings{Cluster: cluster, Node: "n1", Address: first.Address, MemoryBytes: first.MemoryBytes,
			Job: first.Job, PreCopies: true})
	}
	kinds := fresh().Hears()
	for i, kind := range kinds {
		for _, data := range exampleOf(f, kind) {
			f.Add(uint(len(log)), uint(i), data)
		}
	}
	f.Fuzz(func(t *testing.T, when, which uint, data []byte) {
		event, ok := spoken(kinds[which%uint(len(kinds))], data, log)
		if !ok {
			return
		}
		machine, done := fresh(), uint64(0)
		machine.Join(log[0].Logged, first.Incarnation, false)
		for _, before := range log[:when%uint(len(log)+1)] {
			if slices.Contains(kinds, before.Kind) {
				if _, err := machine.Handle(before); err != nil {
					t.Fatal(err)
				}
				machine.Boundary(done)
			}
		}
		actions, err := machine.Handle(event)
		if err != nil {
			t.Fatal(err)
		}
		actions = append(append(actions, machine.Boundary(done)...), machine.Broken(event.Logged, "a peer is gone")...)
		actions = append(append(actions, machine.Frozen(nil)...), machine.Leave(event.Logged, "enough", time.Minute)...)
		for _, action := range actions {
			said, speaks := action.(agent.Say)
			if !speaks {
				continue
			}
			if _, err := said.Event.Read(); err != nil {
				t.Errorf("it says what may not travel: %v\n%s", err, said.Event.Data)
			}
		}
	})
}
