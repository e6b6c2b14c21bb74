package audit

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nkeys"

	"github.com/reknit/reknit/events"
	"github.com/reknit/reknit/services/reknit/internal/scene"
	"github.com/reknit/reknit/shared/bus"
)

// site is a cluster with an audit log.
type site struct {
	*testing.T
	bus  *bus.Bus
	url  string
	path string
	said int
}

func newSite(t *testing.T) *site {
	t.Helper()
	b, url := scene.Begin(t, "c")
	return &site{T: t, bus: b, url: url, path: filepath.Join(t.TempDir(), "audit")}
}

// refuse has the negotiator refuse so many nodes.
func (s *site) refuse(times int) {
	s.Helper()
	for range times {
		s.said++
		node := fmt.Sprint("n", s.said)
		event := events.Speaker{Source: "/negotiator", Cluster: "c"}.First(time.Now(), node, events.MembershipRefused, node,
			&events.Refusal{Node: node, Refused: events.ChangeJoin, Reason: "not <listed> & unknown"})
		if _, err := s.bus.Publish(s.Context(), event); err != nil {
			s.Fatal(err)
		}
	}
}

// runs runs the command, and returns what it prints.
func (s *site) runs(arguments ...string) (string, error) {
	command, out := Command(), new(bytes.Buffer)
	command.SetArgs(arguments)
	command.SetOut(out)
	err := command.ExecuteContext(s.Context())
	return strings.TrimSpace(out.String()), err
}

func (s *site) records(more ...string) (head string) {
	s.Helper()
	head, err := s.runs(append([]string{"record", s.path, "--nats", s.url, "--cluster", "c"}, more...)...)
	if err != nil {
		s.Fatal(err)
	}
	lines := strings.Split(head, "\n")
	if last := len(lines) - 1; last > 0 && !strings.Contains(head, "verify --expect tells by it") {
		s.Fatalf("expected what the last line is for, got %q", head)
	}
	return lines[len(lines)-1]
}

func (s *site) verifies(arguments ...string) string {
	s.Helper()
	says, err := s.runs(append([]string{"verify"}, arguments...)...)
	if err != nil {
		s.Fatal(err)
	}
	return says
}

func (s *site) lines() [][]byte {
	s.Helper()
	text, err := os.ReadFile(s.path)
	if err != nil {
		s.Fatal(err)
	}
	return slices.Collect(bytes.Lines(text))
}

func TestWhatIsRecordedFollowsTheLogFromRunToRun(t *testing.T) {
	s := newSite(t)
	s.refuse(3)
	s.records()
	s.refuse(2)
	head := s.records()
	if !strings.HasPrefix(head, "5:sha256:") || s.records() != head {
		t.Fatalf("the last record is %s, expected the fifth, once", head)
	}
	says := s.verifies(s.path, "--expect", head)
	if !strings.Contains(says, "records 1 to 5 follow each other; 5 are not signed") || !strings.HasSuffix(says, head) {
		t.Errorf("it says %q", says)
	}
	if last := string(s.lines()[4]); !strings.Contains(last, `& unknown`) && !strings.Contains(last, `u0026 unknown`) {
		t.Errorf("the record does not tell why: %s", last)
	}
}

// A refused release was recorded nowhere, nor who asked for a stop.
func TestWhatSomebodyAskedForIsRecordedWithTheRefusal(t *testing.T) {
	for _, row := range events.Catalogue {
		kind := string(row.Kind)
		isAsked := strings.HasSuffix(kind, "-requested") || strings.HasSuffix(kind, "-refused")
		byNode := row.Kind == events.WithdrawalRequested // of a disk that is full, and nobody decides by it
		if isAsked && !byNode && !slices.Contains(Kinds, row.Kind) {
			t.Errorf("%s is not recorded", kind)
		}
	}
}

func TestAPolicyIsRecordedWheneverItIsAnother(t *testing.T) {
	s := newSite(t)
	policy := filepath.Join(t.TempDir(), "admission.json")
	for i, text := range []string{"a", "a", "b"} {
		if err := os.WriteFile(policy, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		s.refuse(1)
		s.records("--policy", policy)
		if found, want := len(s.lines()), []int{2, 3, 5}[i]; found != want {
			t.Errorf("%d records, expected %d", found, want)
		}
	}
	s.verifies(s.path)
}

// What a crash left half written was not recorded, and is recorded again.
// Services take these messages for what they say, and look at nothing else in them.
func TestNoMemberStopsARecorderByWhatItPutsBesideAnEvent(t *testing.T) {
	s := newSite(t)
	event := events.Speaker{Source: "/node/n1", Cluster: "c"}.First(time.Now(), "1", events.LeaveRequested, "n1",
		&events.Leave{Node: "n1", Reason: "tired"})
	plain, err := bus.Encode(event)
	if err != nil {
		t.Fatal(err)
	}
	for i, beside := range []string{`{"digest":5,`, `{"also":"x","digest":"y",`, `{"number":7,"by":true,`} {
		message := append([]byte(beside), plain[1:]...)
		message = bytes.Replace(message, []byte(`tired`), fmt.Appendf(nil, "tired\xff%d", i), 1)
		if _, err := s.bus.JetStream().Publish(t.Context(), events.EventSubject("c", events.LeaveRequested, "n1"), message); err != nil {
			t.Fatal(err)
		}
	}
	s.refuse(1)
	head := s.records()
	if !strings.HasPrefix(head, "4:") || s.records() != head {
		t.Fatalf("the last record is %s, expected the fourth, once", head)
	}
	s.verifies(s.path)
}

func TestAPolicyThatIsGoneIsRecordedSo(t *testing.T) {
	s := newSite(t)
	policy := filepath.Join(t.TempDir(), "admission.json")
	if err := os.WriteFile(policy, bytes.Repeat([]byte("who may join "), 10_000), 0o600); err != nil {
		t.Fatal(err)
	}
	s.records("--policy", policy)
	if err := os.Remove(policy); err != nil {
		t.Fatal(err)
	}
	s.refuse(1)
	s.records("--policy", policy)
	s.records("--policy", policy)
	lines := s.lines()
	if len(lines) != 3 || !bytes.Contains(lines[0], []byte("who may join who may join")) ||
		!bytes.Contains(lines[1], []byte("admission.json")) {
		t.Fatalf("got %d records: %.200s", len(lines), bytes.Join(lines, nil))
	}
	s.verifies(s.path)
}

func TestARecorderGoesOnBehindACrash(t *testing.T) {
	s := newSite(t)
	s.refuse(3)
	s.records()
	whole := bytes.Join(s.lines(), nil)
	if err := os.WriteFile(s.path, whole[:len(whole)-20], 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := s.runs("verify", s.path); err == nil || !strings.Contains(err.Error(), "record 3: expected a whole line") {
		t.Errorf("got %v", err)
	}
	if s.records(); !bytes.Equal(bytes.Join(s.lines(), nil), whole) {
		t.Error("it is not as it was before the crash")
	}
}

func TestAFullFileIsFollowedByAnother(t *testing.T) {
	s := newSite(t)
	for range 4 {
		s.refuse(2)
		s.records("--most", "1000")
	}
	files, err := filepath.Glob(s.path + ".*")
	if err != nil || len(files) < 2 {
		t.Fatalf("files %v, %v", files, err)
	}
	slices.SortFunc(files, func(a, b string) int { return len(a) - len(b) })
	if says := s.verifies(append(files, s.path)...); !strings.Contains(says, "records 1 to 8") {
		t.Errorf("it says %q", says)
	}
	if says := s.verifies(s.path); !strings.Contains(says, "are not here") {
		t.Errorf("of the last file alone it says %q", says)
	}
	if _, err := s.runs(append([]string{"verify"}, files[1:]...)...); len(files) > 2 && err != nil {
		t.Error(err)
	}
	if err := os.WriteFile(s.path, nil, 0o600); err != nil { // it was begun when the recorder crashed
		t.Fatal(err)
	}
	s.records("--most", "100000")
	s.verifies(append(files, s.path)...)
}

func TestWhatTheLogDroppedMeanwhileIsToldAndAnotherLogIsRefused(t *testing.T) {
	s := newSite(t)
	s.refuse(2)
	s.records()
	f, err := openFile(s.path, mostBytes, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer f.close()
	if _, err := s.runs("record", s.path, "--nats", s.url, "--cluster", "c"); err == nil || !strings.Contains(err.Error(), "nobody else to write it") {
		t.Errorf("two write one file: %v", err)
	}
	if err := f.bridge(jetstream.StreamState{FirstSeq: 10, LastSeq: 20}); err != nil || f.last.Lost != 7 {
		t.Errorf("%+v, %v: expected that 7 were lost", f.last, err)
	}
	if err := f.bridge(jetstream.StreamState{LastSeq: 5}); err == nil || !strings.Contains(err.Error(), "another log") {
		t.Errorf("got %v", err)
	}
}

// written is a log of ten records that somebody signed.
func written(t *testing.T) (lines [][]byte, key string) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "audit")
	f, err := openFile(path, mostBytes, newKey(t))
	if err != nil {
		t.Fatal(err)
	}
	defer f.close()
	for i := range uint64(10) {
		if err := f.add(Record{Sequence: i + 1, At: time.Unix(int64(i), 0).UTC(), Lost: 1}); err != nil {
			t.Fatal(err)
		}
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return slices.Collect(bytes.Lines(text)), f.by
}

func TestTheFirstRecordThatWasTamperedWithIsNamed(t *testing.T) {
	other, _ := written(t)
	for what, of := range map[string]struct {
		tamper func(lines [][]byte) [][]byte
		says   string
	}{
		"nothing": {func(lines [][]byte) [][]byte { return lines }, ""},
		"changed": {func(lines [][]byte) [][]byte {
			lines[3] = bytes.Replace(lines[3], []byte(`"lost":1`), []byte(`"lost":2`), 1)
			return lines
		}, "record 4: expected the signature of"},
		"changed, the last": {func(lines [][]byte) [][]byte {
			lines[9] = bytes.Replace(lines[9], []byte(`"lost":1`), []byte(`"lost":2`), 1)
			return lines
		}, "record 10: expected the signature of"},
		"removed": {func(lines [][]byte) [][]byte { return slices.Delete(lines, 3, 4) }, "record 4: expected behind 3, and 5 stands there"},
		"moved": {func(lines [][]byte) [][]byte {
			lines[3], lines[4] = lines[4], lines[3]
			return lines
		}, "record 4: expected behind 3, and 5 stands there"},
		"said twice":             {func(lines [][]byte) [][]byte { return slices.Insert(lines, 4, lines[3]) }, "record 5: expected behind 4, and 4 stands there"},
		"cut at the end":         {func(lines [][]byte) [][]byte { return lines[:7] }, "record 8: expected, and the last is 7: the end was cut off"},
		"another's in its place": {func(lines [][]byte) [][]byte { return append(lines[:3:3], other[3:]...) }, "record 3: expected sha256:"},
		"made anew":              {func([][]byte) [][]byte { return other }, "record 1: by: expected the key of a service or a user"},
		"no JSON": {func(lines [][]byte) [][]byte {
			lines[5] = []byte("{}}\n")
			return lines
		}, "record 6: expected JSON"},
	} {
		lines, key := written(t)
		head := Head{10, events.Digest(bytes.TrimSpace(lines[9]))}
		v := &Verifier{Kit: &bus.Identity{Speakers: map[string]string{"monitor": key}}, Expect: head}
		err := v.Read(bytes.NewReader(bytes.Join(of.tamper(lines), nil)))
		if err == nil {
			err = v.End()
		}
		if (err == nil) != (of.says == "") || err != nil && !strings.HasPrefix(err.Error(), of.says) {
			t.Errorf("%s: %v, expected %q", what, err, of.says)
		}
	}
}

// Without keys the chain is all there is: it shows a change by the record behind it, and the last one by what was kept of it.
func TestWithoutKeysARecordThatWasChangedIsNamedByTheOneBehindIt(t *testing.T) {
	s := newSite(t)
	s.refuse(5)
	head := s.records()
	for at, says := range map[int]string{2: "record 3: expected sha256:", 4: "record 5: expected sha256:"} {
		lines := s.lines()
		lines[at] = bytes.Replace(lines[at], []byte(`"type":"io.reknit.membership.refused.v1"`), []byte(`"type":"io.reknit.membership.refused.v2"`), 1)
		changed := filepath.Join(t.TempDir(), "changed")
		if err := os.WriteFile(changed, bytes.Join(lines, nil), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := s.runs("verify", changed, "--expect", head); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("got %v, expected %q", err, says)
		}
	}
}

// Who has the recorder's key can record what nobody said, and not in another's name.
func TestAnEventThatItsSpeakerDidNotSignIsNamed(t *testing.T) {
	recorder, node := newKey(t), newKey(t)
	id, _ := node.PublicKey()
	by, _ := recorder.PublicKey()
	for what, of := range map[string]struct {
		change func(*Event)
		says   string
	}{
		"as it was signed": {func(*Event) {}, ""},
		"another subject":  {func(e *Event) { e.Subject = "n9" }, "expected the signature of /node/"},
		"other data":       {func(e *Event) { e.Data = `{"reason":"other"}` }, "expected the data of sha256:"},
		"other data, and its digest": {func(e *Event) {
			e.Data, e.Digest = `{"reason":"other"}`, events.Digest([]byte(`{"reason":"other"}`))
		}, "expected the signature of /node/"},
		"by a service": {func(e *Event) { e.Source = "/negotiator" }, "expected the signature of /negotiator"},
	} {
		data := `{"reason":"asked"}`
		event := Event{ID: "1", Type: events.LeaveRequested.Type(), Source: events.NodeSource(id), Subject: id, Cluster: "c",
			Time: time.Unix(1, 5).UTC(), Digest: events.Digest([]byte(data)), Data: data}
		signature, _ := node.Sign(event.signed())
		event.Signature = base64.RawURLEncoding.EncodeToString(signature)
		of.change(&event)
		line, err := write(Record{Number: 1, By: by, Event: &event}, recorder)
		if err != nil {
			t.Fatal(err)
		}
		v := &Verifier{Kit: &bus.Identity{Speakers: map[string]string{"monitor": by, "negotiator": by}}}
		err = v.Read(bytes.NewReader(append(line, '\n')))
		if (err == nil) != (of.says == "") || err != nil && !strings.Contains(err.Error(), of.says) {
			t.Errorf("%s: %v, expected %q", what, err, of.says)
		}
	}
}

func newKey(t *testing.T) nkeys.KeyPair {
	t.Helper()
	pair, err := nkeys.CreateUser()
	if err != nil {
		t.Fatal(err)
	}
	return pair
}
