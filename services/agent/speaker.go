package agent

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"

	"github.com/nats-io/nats.go"

	"github.com/reknit/reknit/events"
	"github.com/reknit/reknit/services/agent/channel"
)

// Core NATS carries what nodes say to one another beside the log. On a secured installation the last token of each subject is who speaks,
// and the server lets nobody publish another's. A request that moves units names its negotiation; frames and parts of
// snapshots count if a plan has them.

// speaker returns who sent a message; empty where nobody proves that.
func (s *Session) speaker(message *nats.Msg) string {
	if !s.bus.Secured() {
		return ""
	}
	return message.Subject[strings.LastIndexByte(message.Subject, '.')+1:]
}

// checkSpeaker reports why a request in the name of a node does not count.
func (s *Session) checkSpeaker(message *nats.Msg, named string) error {
	if speaker := s.speaker(message); speaker != "" && speaker != named {
		return fmt.Errorf("request: expected one in the name of %s, who speaks, got %.100q", speaker, named)
	}
	return nil
}

// deals reports whether a node may connect to this one: it is in the plan or the negotiation, or this one itself.
func (s *Session) deals(node string) bool {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	return node == s.config.Node || s.machine.Deals(node)
}

// checkLender reports why a part of a snapshot is not fetched: an address that no plan has might be anybody's.
func (s *Session) checkLender(node, address string) error {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	if s.bus.Secured() && !s.machine.Lends(node, address) {
		return fmt.Errorf("shardAddress: expected that of a member of the plan in force, or of the negotiation under way, got %.100q of %s",
			address, node)
	}
	return nil
}

// hearRelayed takes a frame from a node that may not use a link of its own to this one.
func (s *Session) hearRelayed(message *nats.Msg) {
	from := s.speaker(message)
	s.mutex.Lock()
	relays := from == "" || s.machine.Relays(from)
	s.mutex.Unlock()
	if !relays {
		slog.Debug("relayed frame refused: no plan has its sender relay", "node", s.config.Node, "from", from)
		return
	}
	frame, err := s.channels.Open(from, channel.Frame, message.Data)
	if err != nil {
		slog.Debug("relayed frame refused", "node", s.config.Node, "error", err)
		return
	}
	s.config.Relayed(from, frame)
}

// requested reads a request of another node into what it is to be, and returns what seals the answer.
func (s *Session) requested(message *nats.Msg, kind channel.Kind, into any) (answer func([]byte) []byte, err error) {
	text, answer, err := s.channels.OpenRequest(s.speaker(message), kind, message.Data)
	if err != nil {
		return nil, err
	}
	return answer, json.Unmarshal(text, into)
}

// processOf returns which process of a node this one works with.
func (s *Session) processOf(node string) string {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	return s.machine.Incarnation(node)
}

// agree has another node answer in a handshake.
func (s *Session) agree(ctx context.Context, node string, words []byte) ([]byte, error) {
	subject := events.ShardSubject(s.config.Cluster, node, s.bus.Identity().Key)
	answer, err := s.bus.Conn().RequestWithContext(ctx, subject, words)
	if err != nil {
		return nil, err
	}
	return answer.Data, nil
}

// answerShard takes what is asked on ShardSubject: a handshake, or to put parts into the hub.
func (s *Session) answerShard(message *nats.Msg) {
	if !s.channels.IsHandshake(message.Data) {
		s.answerViaHub(message)
		return
	}
	go func() {
		answer, err := s.channels.Answer(s.speaker(message), message.Data)
		if err != nil {
			slog.Warn("no channel through the hub", "node", s.config.Node, "error", err)
		}
		if err := message.Respond(answer); err != nil { // at once where there is none, so that it is tried again
			slog.Warn("request not answered", "subject", message.Subject, "error", err)
		}
	}()
}

// relaySubject is where a frame for a node is published.
func (s *Session) relaySubject(node string) string {
	return events.RelaySubject(s.config.Cluster, node, s.bus.Identity().Key)
}
