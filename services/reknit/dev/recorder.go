package dev

import (
	"bufio"
	"encoding/json"
	"os"
	"sync"
	"time"

	"github.com/reknit/reknit/events"
	"github.com/reknit/reknit/shared/bus"
)

// recorder writes every message of the streams as a line of JSON, for checkers and readers.
type recorder struct {
	mutex  sync.Mutex
	file   *os.File
	writer *bufio.Writer
	err    error
}

// line is one message of a stream. Payloads that travelled through the object store stand in the event like others.
type line struct {
	Stream   string          `json:"stream"`
	Sequence uint64          `json:"sequence"`
	Logged   time.Time       `json:"logged"`
	Subject  string          `json:"subject"`
	Event    json.RawMessage `json:"event"`
}

// newRecorder returns a recorder that writes to a file; no path, no record.
func newRecorder(path string) (*recorder, error) {
	if path == "" {
		return &recorder{}, nil
	}
	file, err := os.Create(path)
	if err != nil {
		return nil, err
	}
	return &recorder{file: file, writer: bufio.NewWriter(file)}, nil
}

func (r *recorder) write(stream events.Stream, event events.Event) {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	if r.file == nil || r.err != nil {
		return
	}
	envelope, err := bus.Encode(event)
	if err == nil {
		err = json.NewEncoder(r.writer).Encode(line{stream.Name, event.Sequence, event.Logged, event.SubjectName(), envelope})
	}
	r.err = err
}

func (r *recorder) close() error {
	if r == nil || r.file == nil {
		return nil
	}
	r.mutex.Lock()
	defer r.mutex.Unlock()
	for _, step := range []func() error{r.writer.Flush, r.file.Close} {
		if err := step(); r.err == nil {
			r.err = err
		}
	}
	r.file = nil
	return r.err
}
