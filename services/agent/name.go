package agent

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/reknit/reknit/events"
)

// nameWaits is how long an answer is waited for before the question is put again; the last wait ends it. The hub hears
// that a process was killed after its parent, who starts the next one: the first repeats are quick. The last is for a
// node beyond a WAN.
var nameWaits = []time.Duration{
	5 * time.Millisecond, 15 * time.Millisecond, 30 * time.Millisecond, 50 * time.Millisecond, 200 * time.Millisecond,
	1200 * time.Millisecond,
}

// nameFree reports why this process may not take part by its node's name: another process answers to it. To ask for a
// place would end the other's membership. Two that start at the same moment both find the name free; the later request
// stands. A process that was killed costs milliseconds, and a host that vanished 1.5 s until the hub gives it up.
func (s *Session) nameFree(ctx context.Context) (taken error) {
	err := s.bus.Repeat(ctx, "whether another process has this node's name", func(ctx context.Context) (err error) {
		taken, err = s.askOwnName(ctx)
		return err
	})
	return cmp.Or(taken, err)
}

// askOwnName asks once. Silence says something only where the connection stood meanwhile.
func (s *Session) askOwnName(ctx context.Context) (taken, err error) {
	inbox := s.bus.Conn().NewInbox()
	answers, err := s.bus.Conn().SubscribeSync(inbox)
	if err != nil {
		return nil, err
	}
	defer func() { _ = answers.Unsubscribe() }() // fails where the connection ends
	for _, wait := range nameWaits {
		if err := s.bus.Conn().PublishRequest(events.ProbeSubject(s.config.Cluster, s.config.Node), inbox, []byte("{}")); err != nil {
			return nil, err
		}
		message, err := answers.NextMsg(wait)
		switch {
		case errors.Is(err, nats.ErrTimeout) && errors.Is(s.bus.Conn().LastError(), nats.ErrPermissionViolation):
			slog.Warn("this node may not ask whether its name is free: its kit is of before, provision the cluster again", "node", s.config.Node)
			return nil, nil
		case errors.Is(err, nats.ErrTimeout):
		case errors.Is(err, nats.ErrNoResponders):
			return nil, nil
		case err != nil:
			return nil, err
		default:
			return s.taken(message.Data), nil
		}
	}
	if !s.bus.Conn().IsConnected() {
		return nil, nats.ErrDisconnected
	}
	return nil, ctx.Err() // ended where the connection came back
}

// taken says who answers to this node's name.
func (s *Session) taken(data []byte) error {
	var answer events.ProbeAnswer
	if err := json.Unmarshal(data, &answer); err != nil {
		return fmt.Errorf("answer to a probe of this node's name: %w", err)
	}
	return fmt.Errorf("node %q takes part in cluster %s already, as another process (incarnation %s): expected a name for each, "+
		"or that the other has ended", cmp.Or(s.bus.Identity().Name, s.config.Node), s.config.Cluster, answer.Incarnation)
}
