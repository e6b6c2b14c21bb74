package events

import (
	"maps"
	"slices"
)

// Handlers says what a machine does about each kind of event.
type Handlers[M any] map[Kind]func(machine M, event Event) ([]Event, error)

// Kinds returns the kinds that have a handler, in order.
func (h Handlers[M]) Kinds() []Kind { return slices.Sorted(maps.Keys(h)) }

// Handle returns what the machine says because of an event: nothing, where its kind has no handler; an error, where its
// payload is not what the kind demands.
func (h Handlers[M]) Handle(machine M, event Event) ([]Event, error) {
	handle, ok := h[event.Kind]
	if !ok {
		return nil, nil
	}
	return handle(machine, event)
}

// Handling turns what a machine does about a payload into what it does about an event.
func Handling[M, T any, P interface {
	*T
	Payload
}](handle func(machine M, event Event, payload T) []Event) func(M, Event) ([]Event, error) {
	return func(machine M, event Event) ([]Event, error) {
		payload, err := Open[T, P](event)
		if err != nil {
			return nil, err
		}
		return handle(machine, event, payload), nil
	}
}
