package builds

import (
	"errors"
	"time"

	"github.com/reknit/reknit/events"
	monitor "github.com/reknit/reknit/services/monitor/machine"
)

// Service is the machine of a service. It panics where the other build refuses what it is to hear.
type Service struct {
	machine
	hears []events.Kind
	asks  bool // it may want probes
}

// Service makes the machine of a service.
func (b *Build) Service(name string, settings any) *Service {
	s := &Service{machine: b.newMachine(name, settings)}
	s.must(s.call("Hears", nil, &s.hears))
	return s
}

func (s *Service) must(_ bool, err error) {
	if err != nil {
		panic(err)
	}
}

// says calls a method that returns events.
func (s *Service) says(method string, arguments ...any) (said []events.Event) {
	s.asks = true
	s.must(s.call(method, arguments, &said))
	return said
}

// failure is an error that came over the pipe; nil where that is null.
func failure(text *string) error {
	if text == nil {
		return nil
	}
	return errors.New(*text)
}

// Hears and the methods below are those of the machine.
func (s *Service) Hears() []events.Kind { return s.hears }

func (s *Service) Handle(event events.Event) (said []events.Event, err error) {
	var text *string
	s.asks = true
	s.must(s.call("Handle", []any{event}, &said, &text))
	return said, failure(text)
}

func (s *Service) Tick(now time.Time) []events.Event { return s.says("Tick", now) }

func (s *Service) Snapshot() (memory []byte, err error) {
	var text *string
	s.must(s.call("Snapshot", nil, &memory, &text))
	return memory, failure(text)
}

func (s *Service) Restore(memory []byte) error {
	var text *string
	s.must(s.call("Restore", []any{memory}, &text))
	return failure(text)
}

func (s *Service) Began(at time.Time) { s.must(s.call("Began", []any{at})) }

func (s *Service) Pulse(pulse events.Pulse, waited time.Duration, at time.Time) []events.Event {
	return s.says("Pulse", pulse, waited, at)
}

func (s *Service) Probed(ask monitor.Ask, answer *events.ProbeAnswer, gone bool, at time.Time) []events.Event {
	return s.says("Probed", ask, answer, gone, at)
}

func (s *Service) Asks() (asks []monitor.Ask) {
	if s.asks {
		s.must(s.call("Asks", nil, &asks))
	}
	s.asks = false
	return asks
}
