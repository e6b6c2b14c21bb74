package monitor

import (
	"context"
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
	ctx, cancel := context.WithCancel(w.ctx)
	defer cancel()
	replies := make(chan reply, len(waits))
	for _, wait := range waits {
		go func() {
			message, err := w.bus.Conn().RequestWithContext(ctx, events.ProbeSubject(w.bus.Cluster(), ask.Node), request)
			replies <- reply{message, err}
		}()
		select {
		case reply := <-replies:
			if reply.err != nil {
				return nil, errors.Is(reply.err, nats.ErrNoResponders)
			}
			if answer := readAnswer(reply.message, ask.Node); answer != nil {
				return answer, false
			}
		case <-time.After(wait):
		}
	}
	return nil, false
}

// reply is what comes of one sending of a probe. All requests of a connection share one subscription: a server grants 256, and
// a crowd that falls silent is more.
type reply struct {
	message *nats.Msg
	err     error
}

func readAnswer(reply *nats.Msg, node string) *events.ProbeAnswer {
	var answer events.ProbeAnswer
	if err := events.Decode(reply.Data, &answer); err != nil || answer.Node != node {
		slog.Warn("answer to a probe refused", "node", node, "says", answer.Node, "error", err)
		return nil
	}
	return &answer
}
