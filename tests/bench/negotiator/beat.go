package main

import (
	"encoding/json"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/reknit/reknit/events"
)

// beat sends everybody's heartbeats, spread over the time between two.
func (f *fleet) beat() {
	for f.ctx.Err() == nil {
		f.mutex.Lock()
		trainers := slices.Collect(maps.Values(f.trainers))
		f.mutex.Unlock()
		began := time.Now()
		for i, t := range trainers {
			time.Sleep(time.Until(began.Add(f.every * time.Duration(i) / time.Duration(len(trainers)))))
			f.pulse(t)
		}
		time.Sleep(time.Until(began.Add(f.every)))
	}
}

func (f *fleet) pulse(t *trainer) {
	f.mutex.Lock()
	generation := uint64(0)
	if f.plan != nil && t.named(f.plan.Nodes) {
		generation = f.plan.Generation
	}
	pulse, there := t.pulse(generation, f.step), f.trainers[t.name] == t
	for _, silent := range f.silent {
		if time.Since(silent.since) > silentAfter && slices.Contains(silent.watchers, t.name) {
			pulse.Suspicions = append(pulse.Suspicions, events.Suspicion{Node: silent.node, Reason: "no answer to keep-alives"})
		}
	}
	f.mutex.Unlock()
	data, err := json.Marshal(pulse)
	if err == nil && there {
		err = t.bus.Conn().Publish(events.PulseSubject(cluster, t.name), data)
	}
	if err != nil && f.ctx.Err() == nil {
		slog.Error("no heartbeat", "of", t.name, "error", err)
	}
}

// probed answers for a trainer that is asked for a sign of life, or for a link.
func (f *fleet) probed(message *nats.Msg) {
	var probe events.Probe
	if json.Unmarshal(message.Data, &probe) != nil {
		return
	}
	f.mutex.Lock()
	t := f.trainers[message.Subject[strings.LastIndexByte(message.Subject, '.')+1:]]
	there := f.trainers[probe.Target] != nil
	f.mutex.Unlock()
	if t == nil {
		return
	}
	answer := events.ProbeAnswer{Node: t.name, Incarnation: t.incarnation}
	switch {
	case probe.Target != "" && !there:
		answer.Error, answer.Finding = "no answer", events.FoundUnreachable
	case probe.Target != "":
		measured := t.measured(probe.Target)
		answer.Measured = &measured
	}
	if data, err := json.Marshal(answer); err == nil {
		_ = message.Respond(data)
	}
}
