package audit

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/nats-io/nkeys"

	"github.com/reknit/reknit/events"
)

// file is an audit log that is written. Nobody else writes it meanwhile.
type file struct {
	path   string
	most   int64 // bytes, before another file is begun
	key    nkeys.KeyPair
	by     string
	open   *os.File
	size   int64
	last   Record            // zero: there is none
	digest string            // of its line
	files  map[string]string // digests of policies, as they were recorded last
	failed error             // nothing more is recorded
}

// openFile goes on with an audit log, or begins one. A line that a crash left half written is dropped: it was not recorded.
func openFile(path string, most int64, key nkeys.KeyPair) (*file, error) {
	f := &file{path: path, most: most, key: key, files: map[string]string{}}
	if key != nil {
		var err error
		if f.by, err = key.PublicKey(); err != nil {
			return nil, err
		}
	}
	if err := f.begin(); err != nil {
		return nil, err
	}
	if err := f.recall(); err != nil {
		f.close()
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return f, nil
}

func (f *file) begin() (err error) {
	if f.open, err = os.OpenFile(f.path, os.O_RDWR|os.O_CREATE|os.O_APPEND, 0o600); err != nil {
		return err
	}
	if err = lock(f.open); err != nil {
		f.close()
		return fmt.Errorf("%s: expected nobody else to write it: %w", f.path, err)
	}
	return nil
}

func (f *file) close() { f.open.Close() }

// recall reads what stands there, and drops a half of a line at its end.
func (f *file) recall() error {
	text, err := io.ReadAll(f.open)
	if err != nil {
		return err
	}
	whole := bytes.LastIndexByte(text, '\n') + 1
	if whole < len(text) {
		if err := f.open.Truncate(int64(whole)); err != nil {
			return err
		}
	}
	if f.size = int64(whole); whole == 0 { // it was begun a moment before a crash, or is the first
		if text, err = f.turned(); err != nil {
			return err
		}
		whole = len(text)
	}
	verifier := Verifier{}
	if err := verifier.Read(bytes.NewReader(text[:whole])); err != nil {
		return err // nothing is put behind what somebody changed
	}
	f.digest = verifier.head.Digest
	for text := range bytes.Lines(text[:whole]) {
		var line Line
		f.last = Record{}
		if err := errors.Join(json.Unmarshal(text, &line), json.Unmarshal(line.Record, &f.last)); err != nil {
			return err
		}
		if f.last.File != nil {
			f.files[f.last.File.Name] = f.last.File.Digest
		}
	}
	return nil
}

// add records something behind what stands there. Once it failed, it fails.
func (f *file) add(record Record) error {
	if f.failed == nil {
		f.failed = f.append(record)
	}
	return f.failed
}

func (f *file) append(record Record) error {
	record.Number, record.Previous, record.By = f.last.Number+1, f.digest, f.by
	line, err := write(record, f.key)
	if err != nil {
		return err
	}
	if f.size > 0 && f.size+int64(len(line)) >= f.most {
		if err := f.turn(); err != nil {
			return err
		}
	}
	if _, err := f.open.Write(append(line, '\n')); err != nil {
		return err
	}
	f.size += int64(len(line)) + 1
	f.last, f.digest = record, events.Digest(line)
	return nil
}

// store returns once all that was recorded is on the disk.
func (f *file) store() error {
	if f.failed == nil {
		f.failed = f.open.Sync()
	}
	return f.failed
}

// turn begins another file. The one before has the number of its last record behind its name; its records are chained to those
// that follow.
func (f *file) turn() error {
	old := fmt.Sprintf("%s.%d", f.path, f.last.Number)
	if _, err := os.Stat(old); !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%s: expected no such file", old)
	}
	if err := f.open.Sync(); err != nil {
		return err
	}
	if err := os.Rename(f.path, old); err != nil {
		return err
	}
	f.close()
	f.size = 0
	return f.begin()
}

// turned returns what stands in the last of the files that were filled before; nothing where there is none.
func (f *file) turned() (text []byte, err error) {
	others, err := filepath.Glob(f.path + ".*")
	newest := uint64(0)
	for _, other := range others {
		if number, err := strconv.ParseUint(strings.TrimPrefix(other, f.path+"."), 10, 64); err == nil {
			newest = max(newest, number)
		}
	}
	if err != nil || newest == 0 {
		return nil, err
	}
	return os.ReadFile(fmt.Sprint(f.path, ".", newest))
}

// note records a policy's file where it is another than was recorded last, or gone.
func (f *file) note(name string, record Record) error {
	data, err := os.ReadFile(name)
	record.File = &File{Name: name, Digest: events.Digest(data), Data: kept(data, MostFile)}
	switch {
	case errors.Is(err, fs.ErrNotExist):
		record.File = &File{Name: name}
	case err != nil:
		return err
	}
	if before, known := f.files[name]; known && before == record.File.Digest {
		return nil
	}
	f.files[name] = record.File.Digest
	return f.add(record)
}
