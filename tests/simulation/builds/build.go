// Package builds has the machines of another build of Reknit stand in a world of this one: a process that is driven over a pipe.
package builds

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"

	"github.com/reknit/reknit/tests/simulation/builds/pipe"
)

// Build is a process of another build, with machines of it. It serves one goroutine.
type Build struct {
	process *exec.Cmd
	in      io.WriteCloser
	out     *bufio.Writer
	calls   *json.Encoder
	answers *json.Decoder
	made    int // machines
}

// Start starts the program driven of a build.
func Start(program string) (*Build, error) {
	b := &Build{process: exec.Command(program)}
	b.process.Stderr = os.Stderr
	in, err := b.process.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := b.process.StdoutPipe()
	if err != nil {
		return nil, err
	}
	b.in, b.out, b.answers = in, bufio.NewWriter(in), json.NewDecoder(out)
	b.calls = json.NewEncoder(b.out)
	return b, b.process.Start()
}

// Close ends the process, and with it all its machines.
func (b *Build) Close() error { return errors.Join(b.in.Close(), b.process.Wait()) }

// machine is one of another build.
type machine struct {
	build *Build
	index int
}

// newMachine makes one of a kind. It panics where the other build cannot.
func (b *Build) newMachine(kind string, settings any) machine {
	b.ask(pipe.Call{Kind: kind, Arguments: []json.RawMessage{encoded(settings)}})
	b.made++
	return machine{b, b.made - 1}
}

// ask panics where the process does not answer: nothing can be said of a run without it.
func (b *Build) ask(call pipe.Call) (answer pipe.Answer) {
	if err := errors.Join(b.calls.Encode(call), b.out.Flush()); err != nil {
		panic(fmt.Errorf("the other build: %s: %w", call.Method, err))
	}
	if err := b.answers.Decode(&answer); err != nil {
		panic(fmt.Errorf("the other build: answer to %s: %w", call.Method, err))
	}
	if answer.Panic != "" {
		panic(fmt.Errorf("the other build: %s: %s", call.Method, answer.Panic))
	}
	return answer
}

// errRefused says that what was to be heard is no event of the other build's catalogue.
var errRefused = errors.New("the other build refuses")

// call has a method called, whose results are put where these point. A method that the other build does not have gives nothing.
func (m machine) call(method string, arguments []any, results ...any) (missing bool, err error) {
	call := pipe.Call{Machine: m.index, Method: method}
	for _, argument := range arguments {
		call.Arguments = append(call.Arguments, encoded(argument))
	}
	answer := m.build.ask(call)
	switch {
	case answer.Missing:
		return true, nil
	case answer.Refused != "":
		return false, fmt.Errorf("%w %s", errRefused, answer.Refused)
	}
	for i, result := range results {
		if err := json.Unmarshal(answer.Results[i], result); err != nil {
			panic(fmt.Errorf("the other build: result of %s: %w", method, err))
		}
	}
	return false, nil
}

func encoded(value any) json.RawMessage {
	data, err := json.Marshal(value)
	if err != nil {
		panic(fmt.Errorf("to the other build: %w", err))
	}
	return data
}
