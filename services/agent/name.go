package agent

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
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

// nameFree reports why this process may not take part by its node's name: another process answers to it, whose membership
// a request would end. Two that start at the same moment, or while the other has lost its connection, both find the name
// free: the later request stands, and Machine.Replaced says which of them ends. A process that was killed costs
// milliseconds, and a host that vanished 1.5 s until the hub gives it up.
func (s *Session) nameFree() error {
	inbox, subject := s.bus.Conn().NewInbox(), events.ProbeSubject(s.config.Cluster, s.config.Node)
	answers, err := s.bus.Conn().SubscribeSync(inbox)
	if err != nil {
		return err
	}
	defer func() { _ = answers.Unsubscribe() }() // fails where the connection ends
	for _, wait := range nameWaits {
		if err := s.bus.Conn().PublishRequest(subject, inbox, []byte("{}")); err != nil {
			return err
		}
		message, err := answers.NextMsg(wait)
		switch {
		case errors.Is(err, nats.ErrTimeout) && s.mayNotSay(subject):
			slog.Warn("this node may not ask whether its name is free: provision again, its kit is older than that question",
				"node", s.config.Node)
			return nil
		case errors.Is(err, nats.ErrTimeout):
		case errors.Is(err, nats.ErrNoResponders):
			return nil
		case err != nil:
			return err
		default:
			return s.taken(message.Data)
		}
	}
	return nil
}

// mayNotSay reports whether the last that the hub found fault with is that this node said something on a subject.
func (s *Session) mayNotSay(subject string) bool {
	err := s.bus.Conn().LastError()
	return errors.Is(err, nats.ErrPermissionViolation) && strings.Contains(err.Error(), strconv.Quote(subject))
}

// taken says who answers to this node's name.
func (s *Session) taken(data []byte) error {
	var answer events.ProbeAnswer
	if err := json.Unmarshal(data, &answer); err != nil {
		return fmt.Errorf("answer to a probe of this node's name: %w", err)
	}
	return fmt.Errorf("node %q takes part in cluster %s already, as another process (incarnation %s): expected a name for each "+
		"(REKNIT_AGENT_NODE, or the node that the script names), or that the other has ended", cmp.Or(s.bus.Identity().Name, s.config.Node), s.config.Cluster, answer.Incarnation)
}
