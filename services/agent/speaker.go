package agent

import (
	"fmt"
	"log/slog"
	"strings"

	"github.com/nats-io/nats.go"

	"github.com/reknit/reknit/events"
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
	s.config.Relayed(from, message.Data)
}

// relaySubject is where a frame for a node is published.
func (s *Session) relaySubject(node string) string {
	return events.RelaySubject(s.config.Cluster, node, s.bus.Identity().Key)
}
