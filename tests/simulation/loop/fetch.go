package loop

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/reknit/reknit/events"
	"github.com/reknit/reknit/shared/bus"
	"github.com/reknit/reknit/tests/simulation/stream"
)

// fetching is a payload on its way. A payload that cannot be read over one connection for too long is refused.
type fetching struct {
	repeats  repeats
	began    time.Time
	isMissed bool          // the store had nothing of its name
	patience time.Duration // from then on
}

// allowance is for how much longer of a minute a connection waits for what nodes name and the store does not have.
type allowance struct {
	began time.Time // the minute
	spent time.Duration
}

func (a *allowance) take(now time.Time) time.Duration {
	if now.Sub(a.began) >= time.Minute {
		a.began, a.spent = now, 0
	}
	allowed := max(0, min(missingAfter, mostMissing-a.spent))
	a.spent += allowed
	return allowed
}

func (a *allowance) giveBack(rest time.Duration) { a.spent = max(0, a.spent-max(0, rest)) }

// mostApart is how many bytes that were read apart a memory has beside the machine's, as in shared/service.
const mostApart = 1 << 20

func (s *Service) fetch(now time.Time, fate stream.Fate) time.Duration {
	words := s.delivery.Message.Data.(Words)
	payloads := s.bus.server.Events.Payloads
	_, whole, err := payloads.Info(words.Apart, fate)
	if err == nil && !whole {
		err = errIncomplete
	}
	if err == nil {
		_, err = payloads.Get(words.Apart, fate)
	}
	if err == nil {
		s.fetchedAll(now)
		return 0
	}
	wait := s.fetched.repeats.after(err, objectTimeout)
	if errors.Is(err, stream.ErrNoConnection) || s.bus.connections > 0 && s.bus.since.After(s.fetched.began) {
		s.fetched.began = now
	}
	longest := unreadableAfter
	if missing := errors.Is(err, jetstream.ErrObjectNotFound) || errors.Is(err, errIncomplete); missing {
		longest = s.missed(now, fate)
	}
	if now.Sub(s.fetched.began) < longest {
		return wait
	}
	s.giveBack(now)
	detail := fmt.Sprintf("dataref: not read within %v: %v", longest, err)
	s.deliver(&bus.Refusal{Reason: bus.Unreadable, Detail: detail, Subject: s.delivery.Message.Subject})
	return 0
}

var errIncomplete = errors.New("content is not all there")

// missed returns how long a payload is waited for that the store does not have: not at all where a service has refused its message.
func (s *Service) missed(now time.Time, fate stream.Fate) time.Duration {
	if s.isRefused(fate) {
		return 0
	}
	if !strings.HasPrefix(s.delivery.Message.Data.(Words).Event.Source, events.NodeSource("")) {
		return unreadableAfter
	}
	if !s.fetched.isMissed {
		s.fetched.isMissed, s.fetched.patience = true, s.missing.take(now)
	}
	return s.fetched.patience
}

// isRefused reports whether the log has a record that the payload of the message that was taken cannot be read.
func (s *Service) isRefused(fate stream.Fate) bool {
	subject := events.EventSubject(s.bus.cluster, events.EventRefused, strconv.FormatUint(s.delivery.Message.Sequence, 10))
	last, err := s.bus.server.Events.Last(subject, fate)
	if err != nil {
		return false
	}
	refusal, err := events.Open[events.Quarantine](Heard(&last))
	return err == nil && refusal.Reason == bus.Unreadable
}

// fetchedAll keeps the payload that was read, with the memory as it is, before anything comes of it.
func (s *Service) fetchedAll(now time.Time) {
	s.giveBack(now)
	next := s.memory.page
	next.apart = append(slices.Clip(next.apart), apart{s.delivery.Message.Sequence, int64(len(Heard(s.delivery.Message).Data))})
	s.memory.begin(s.bus, next)
	s.point = Keep
}

func (s *Service) giveBack(now time.Time) {
	if s.fetched.isMissed {
		s.missing.giveBack(s.fetched.patience - now.Sub(s.fetched.began))
	}
}
