package monitor

import (
	"encoding/json"
	"errors"
	"log/slog"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/reknit/reknit/events"
	"github.com/reknit/reknit/services/monitor/machine"
)

// How long an answer is waited for before the probe is sent again; the last wait ends it. When a process is killed, a
// peer may hear of it before the hub does, and a probe sent in between goes to a subscriber that is no more: the first
// repeats are quick. A link is measured once, and an agent gives up a measurement after two seconds.
var (
	lifeWaits = []time.Duration{
		5 * time.Millisecond, 15 * time.Millisecond, 30 * time.Millisecond, 50 * time.Millisecond, 200 * time.Millisecond,
	}
	linkWaits = []time.Duration{3 * time.Second}
)

// probe asks a node, and returns its answer or nil for none in time; gone when the hub has nobody to ask.
func (w *watcher) probe(ask machine.Ask) (answer *events.ProbeAnswer, gone bool) {
	waits := lifeWaits
	if ask.Target != "" {
		waits = linkWaits
	}
	request, err := json.Marshal(events.Probe{Target: ask.Target, Address: ask.Address, Bytes: ask.Bytes})
	if err != nil {
		return nil, false
	}
	conn := w.bus.Conn()
	inbox := conn.NewRespInbox()
	replies, err := conn.SubscribeSync(inbox)
	if err != nil {
		return nil, false
	}
	defer func() { _ = replies.Unsubscribe() }()
	for _, wait := range waits {
		if err := conn.PublishRequest(events.ProbeSubject(w.bus.Cluster(), ask.Node), inbox, request); err != nil {
			return nil, false
		}
		reply, err := replies.NextMsg(wait)
		switch {
		case errors.Is(err, nats.ErrNoResponders):
			return nil, true
		case errors.Is(err, nats.ErrTimeout):
			continue
		case err != nil:
			return nil, false
		}
		if answer := readAnswer(reply, ask.Node); answer != nil {
			return answer, false
		}
	}
	return nil, false
}

func readAnswer(reply *nats.Msg, node string) *events.ProbeAnswer {
	var answer events.ProbeAnswer
	if err := json.Unmarshal(reply.Data, &answer); err != nil || answer.Node != node {
		slog.Warn("answer to a probe refused", "node", node, "says", answer.Node, "error", err)
		return nil
	}
	return &answer
}
