package agent

import (
	"context"
	"fmt"
	"log/slog"
	"strconv"
	"time"

	"github.com/reknit/reknit/events"
	"github.com/reknit/reknit/services/agent/machine"
)

// refusalWaits are the pauses before the log is asked whether the services refused what this node said: they do within
// milliseconds where they run, and within seconds where they were behind. 1,000 nodes that consent ask 2,000 times.
var refusalWaits = []time.Duration{500 * time.Millisecond, 3 * time.Second}

// hearRefusal tells who reads the log, and the trainer, that the services refused what the stream has acknowledged: nobody
// answers it. Shards are offered by the thousand, and whoever misses one says so.
func (s *Session) hearRefusal(ctx context.Context, event events.Event, sequence uint64) {
	if event.Kind == events.ShardOffered {
		return
	}
	subject := events.EventSubject(s.config.Cluster, events.EventRefused, strconv.FormatUint(sequence, 10))
	for _, wait := range refusalWaits {
		if !pause(ctx, wait) {
			return
		}
		record, found, err := s.bus.LastEvent(ctx, events.EventStream, subject) // by a service: nobody else may say it
		if err != nil {
			slog.Debug("it is not known whether something was refused", "node", s.config.Node, "event", event.Kind, "error", err)
		} else if found {
			s.isRefused(event, record)
			return
		}
	}
}

func (s *Session) isRefused(event, record events.Event) {
	refusal, err := events.Open[events.Quarantine](record)
	if err != nil {
		return // LastEvent has read it
	}
	slog.Error("the services refuse what this node said, and do not answer it", "node", s.config.Node, "event", event.Kind,
		"by", record.Source, "reason", refusal.Reason, "detail", refusal.Detail)
	if event.Kind != events.JoinRequested {
		return
	}
	s.mutex.Lock()
	defer s.mutex.Unlock()
	if s.machine.Snapshot().Generation == 0 {
		s.waits(machine.Waits{Since: event.Time,
			Reason: fmt.Sprintf("the services refuse this node's request to join: %s: %s", refusal.Reason, refusal.Detail)})
	}
}
