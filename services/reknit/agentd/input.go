package agentd

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"sync"
)

// mostInput bounds what is remembered of what trainers read: a script or a configuration, and no data.
var mostInput = 16 << 20 // bytes

// input is the agent's standard input, which each trainer that is started reads from its beginning.
type input struct {
	file  *os.File // nil: none that a process group in the background can read
	start int64    // in a file; -1: it cannot be rewound

	reading sync.Mutex // held while more is read, which may take for good: for one trainer at a time

	mutex sync.Mutex
	read  []byte // so far, of what cannot be rewound
	spent bool   // more was read than is remembered
	end   error  // why there is no more
}

// inputOf returns the input of trainers. A terminal is none: a process group in its background stands still for good where it reads there.
func inputOf(file *os.File) *input {
	about, err := file.Stat()
	if err != nil || about.Mode()&os.ModeCharDevice != 0 {
		return &input{}
	}
	in := &input{file: file, start: -1}
	if start, err := file.Seek(0, io.SeekCurrent); err == nil {
		in.start = start
	}
	return in
}

// open returns the input from its beginning, and what is to be closed once the trainer has it; nil for none.
func (in *input) open() (file *os.File, opened io.Closer, err error) {
	switch {
	case in.file == nil:
		return nil, io.NopCloser(nil), nil
	case in.start >= 0:
		_, err := in.file.Seek(in.start, io.SeekStart)
		return in.file, io.NopCloser(nil), err
	}
	if err := in.again(); err != nil {
		return nil, nil, err
	}
	reader, writer, err := os.Pipe()
	if err != nil {
		return nil, nil, fmt.Errorf("standard input of the trainer: %w", err)
	}
	go in.pass(writer)
	return reader, reader, nil
}

// again returns an error where another trainer cannot read what the one before read.
func (in *input) again() error {
	in.mutex.Lock()
	defer in.mutex.Unlock()
	if in.spent {
		return fmt.Errorf("standard input: expected at most %d bytes to remember, or a file: a trainer has read more, and cannot be given that again", mostInput)
	}
	return nil
}

// pass passes the input to a trainer, until either ends.
func (in *input) pass(writer *os.File) {
	defer writer.Close()
	for at := 0; ; {
		data, err := in.from(at)
		if _, gone := writer.Write(data); gone != nil || err != nil {
			if err != nil && !errors.Is(err, io.EOF) {
				slog.Warn("standard input is not read", "error", err)
			}
			return
		}
		at += len(data)
	}
}

const inputBytes = 64 << 10 // at a time, as much as a pipe holds

// from returns what stands behind the first bytes, once there is any.
func (in *input) from(at int) ([]byte, error) {
	if data, err := in.known(at); data != nil || err != nil {
		return data, err
	}
	in.reading.Lock()
	defer in.reading.Unlock()
	if data, err := in.known(at); data != nil || err != nil { // another trainer's, which has ended since, was read meanwhile
		return data, err
	}
	data := make([]byte, inputBytes)
	n, err := in.file.Read(data)
	in.mutex.Lock()
	defer in.mutex.Unlock()
	in.end = err
	if len(in.read)+n > mostInput {
		in.spent = true
	} else if !in.spent {
		in.read = append(in.read, data[:n]...)
	}
	return data[:n], nil
}

// known returns what was read already behind the first bytes; nothing where nothing was.
func (in *input) known(at int) ([]byte, error) {
	in.mutex.Lock()
	defer in.mutex.Unlock()
	if at < len(in.read) {
		return in.read[at:], nil
	}
	return nil, in.end
}
