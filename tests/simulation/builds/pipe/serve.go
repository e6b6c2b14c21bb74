package pipe

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"runtime/debug"
	"slices"

	"github.com/reknit/reknit/events"
	agent "github.com/reknit/reknit/services/agent/machine"
)

// Serve makes machines of this build and calls them until the reader ends.
func Serve(r io.Reader, w io.Writer) error {
	var machines []reflect.Value
	calls, out := json.NewDecoder(r), bufio.NewWriter(w)
	answers := json.NewEncoder(out)
	for {
		var call Call
		if err := calls.Decode(&call); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return fmt.Errorf("call: %w", err)
		}
		var answer Answer
		if call.Kind != "" {
			machine, err := newMachine(call.Kind, call.Arguments[0])
			if err != nil {
				return err
			}
			machines = append(machines, reflect.ValueOf(machine))
		} else if err := answer.of(machines[call.Machine].MethodByName(call.Method), call); err != nil {
			return fmt.Errorf("%s: %w", call.Method, err)
		}
		if err := errors.Join(answers.Encode(answer), out.Flush()); err != nil {
			return fmt.Errorf("answer: %w", err)
		}
	}
}

// of calls a method, with as many arguments as it has in this build. An event is looked at as the bus of this build does.
func (a *Answer) of(method reflect.Value, call Call) error {
	if a.Missing = !method.IsValid(); a.Missing {
		return nil
	}
	var in []reflect.Value
	for i, argument := range call.Arguments[:min(len(call.Arguments), method.Type().NumIn())] {
		value, err := decoded(method.Type().In(i), argument)
		if err != nil {
			return err
		}
		if event, is := value.Interface().(events.Event); is {
			if _, err := event.Read(); err != nil {
				a.Refused = fmt.Sprintf("%s: %v", event.Kind, err)
				return nil
			}
		}
		in = append(in, value)
	}
	for _, out := range a.guarded(method, in) {
		result, err := encoded(out.Interface())
		if err != nil {
			return err
		}
		a.Results = append(a.Results, result)
	}
	return nil
}

func (a *Answer) guarded(method reflect.Value, in []reflect.Value) []reflect.Value {
	defer func() {
		if cause := recover(); cause != nil {
			a.Panic = fmt.Sprintf("%v\n%s", cause, debug.Stack())
		}
	}()
	return method.Call(in)
}

// results end an agent's tasks.
var results = []any{agent.Measured{}, agent.Told{}, agent.Adopted{}, agent.CaughtUp{}, agent.Exported{}, agent.Fetched{}, agent.Failed{}}

func decoded(of reflect.Type, data json.RawMessage) (reflect.Value, error) {
	if of == reflect.TypeFor[agent.Result]() {
		result, err := Untag(data, results)
		return reflect.ValueOf(result), err
	}
	value := reflect.New(of)
	err := json.Unmarshal(data, value.Interface())
	return value.Elem(), err
}

func encoded(value any) (json.RawMessage, error) {
	switch v := value.(type) {
	case error:
		return json.Marshal(v.Error())
	case []agent.Action:
		var tagged []json.RawMessage
		for _, action := range v {
			one, err := Tag(action)
			if err != nil {
				return nil, err
			}
			tagged = append(tagged, one)
		}
		return json.Marshal(tagged)
	}
	return json.Marshal(value)
}

// Tag returns a value as a Tagged.
func Tag(value any) (json.RawMessage, error) {
	data, err := json.Marshal(value)
	if err != nil {
		return nil, err
	}
	return json.Marshal(Tagged{reflect.TypeOf(value).Name(), data})
}

// Untag returns the value of a Tagged, whose type is that of one of the examples.
func Untag(data json.RawMessage, examples []any) (any, error) {
	var tagged Tagged
	if err := json.Unmarshal(data, &tagged); err != nil {
		return nil, err
	}
	i := slices.IndexFunc(examples, func(example any) bool { return reflect.TypeOf(example).Name() == tagged.Type })
	if i < 0 {
		return nil, fmt.Errorf("type: expected one that this build knows, got %q", tagged.Type)
	}
	value := reflect.New(reflect.TypeOf(examples[i]))
	err := json.Unmarshal(tagged.Value, value.Interface())
	return value.Elem().Interface(), err
}
