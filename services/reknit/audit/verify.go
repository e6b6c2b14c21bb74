package audit

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/reknit/reknit/events"
	"github.com/reknit/reknit/shared/bus"
)

// Head is the last record that was verified. Anybody who keeps it sees later whether records behind it were cut off.
type Head struct {
	Number uint64
	Digest string // of the line
}

func (h Head) String() string { return fmt.Sprintf("%d:%s", h.Number, h.Digest) }

// ReadHead reads what String tells.
func ReadHead(text string) (head Head, err error) {
	number, digest, _ := strings.Cut(text, ":")
	if _, err = fmt.Sscan(number, &head.Number); err != nil || !strings.HasPrefix(digest, "sha256:") {
		return head, fmt.Errorf("head: expected NUMBER:sha256:DIGITS, got %q", text)
	}
	head.Digest = digest
	return head, nil
}

// Verifier reads audit logs, one after the other as they follow each other.
type Verifier struct {
	Kit      *bus.Identity // for the keys of services and users; nil: nobody signs there, and only the chain is looked at
	Expect   Head          // that must be among the records, or zero
	first    uint64
	head     Head
	sequence uint64
	met      bool // the expected head
	unsigned int  // records
}

// Read verifies a file. Its error names the first record that does not fit.
func (v *Verifier) Read(file io.Reader) error {
	lines := bufio.NewReader(file)
	for {
		line, err := lines.ReadBytes('\n')
		switch {
		case errors.Is(err, io.EOF) && len(line) == 0:
			return nil
		case errors.Is(err, io.EOF):
			return fmt.Errorf("record %d: expected a whole line, got the beginning of one", v.head.Number+1)
		case err != nil:
			return err
		}
		if err := v.line(line[:len(line)-1]); err != nil {
			return err
		}
	}
}

// End reports whether the expected head was met.
func (v *Verifier) End() error {
	switch {
	case v.Expect.Number == 0 || v.met:
		return nil
	case v.Expect.Number > v.head.Number:
		return fmt.Errorf("record %d: expected, and the last is %d: the end was cut off", v.head.Number+1, v.head.Number)
	}
	return fmt.Errorf("record %d: expected %s, which is before the first here", v.first, v.Expect)
}

func (v *Verifier) line(text []byte) error {
	var line Line
	var record Record
	if err := json.Unmarshal(text, &line); err != nil {
		return fmt.Errorf("record %d: expected JSON: %w", v.head.Number+1, err)
	}
	if err := json.Unmarshal(line.Record, &record); err != nil {
		return fmt.Errorf("record %d: expected a record: %w", v.head.Number+1, err)
	}
	if err := v.follows(record); err != nil {
		return err
	}
	if err := v.believes(line, record); err != nil {
		return fmt.Errorf("record %d: %w", record.Number, err)
	}
	if v.first == 0 {
		v.first = record.Number
	}
	if record.By == "" {
		v.unsigned++
	}
	v.head, v.sequence = Head{record.Number, events.Digest(text)}, record.Sequence
	if v.head.Number == v.Expect.Number {
		if v.met = v.head == v.Expect; !v.met {
			return fmt.Errorf("record %d: expected %s, got %s: it is another than was seen before", record.Number, v.Expect.Digest, v.head.Digest)
		}
	}
	return nil
}

// follows reports why a record cannot be the next.
func (v *Verifier) follows(record Record) error {
	switch {
	case v.first == 0 && record.Number == 0:
		return errors.New("record 1: expected a number from 1 on, got 0")
	case v.first == 0 && (record.Number == 1) != (record.Previous == ""):
		return fmt.Errorf("record %d: expected a record before it, unless it is the first", record.Number)
	case v.first == 0:
		return nil
	case record.Number != v.head.Number+1:
		return fmt.Errorf("record %d: expected behind %d, and %d stands there: records were removed or moved", v.head.Number+1, v.head.Number,
			record.Number)
	case record.Previous != v.head.Digest:
		return fmt.Errorf("record %d: expected %s, which record %d follows, got %s: it was changed", v.head.Number, record.Previous,
			record.Number, v.head.Digest)
	case record.Sequence < v.sequence:
		return fmt.Errorf("record %d: expected a sequence from %d on, got %d: the log goes back", record.Number, v.sequence, record.Sequence)
	}
	return nil
}

// believes reports why the words of a record are not those of whom it names.
func (v *Verifier) believes(line Line, record Record) error {
	if record.By != "" && !verified(record.By, line.Signature, append([]byte(domain), line.Record...)) {
		return fmt.Errorf("expected the signature of %s: it was changed", record.By)
	}
	if file := record.File; file != nil && file.Data != "" && events.Digest([]byte(file.Data)) != file.Digest {
		return fmt.Errorf("expected the data of %s", file.Digest)
	}
	event := record.Event
	if event != nil && event.Data != "" && events.Digest([]byte(event.Data)) != event.Digest {
		return fmt.Errorf("expected the data of %s", event.Digest)
	}
	if v.Kit == nil {
		return nil
	}
	if !v.records(record) {
		return fmt.Errorf("by: expected the key of a service or a user of this installation, got %q", record.By)
	}
	if event == nil {
		return nil
	}
	signs := func(key string) bool { return verified(key, event.Signature, event.signed()) }
	if !slices.ContainsFunc(v.Kit.KeysOf(event.Source, record.At), signs) {
		return fmt.Errorf("event %s: expected the signature of %s", event.ID, event.Source)
	}
	return nil
}

// records reports whether a service or a user had the key of a record when it was made.
func (v *Verifier) records(record Record) bool {
	for name := range v.Kit.Speakers {
		if slices.Contains(v.Kit.KeysOf(name, record.At), record.By) {
			return true
		}
	}
	return false
}
