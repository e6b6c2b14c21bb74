package local

import (
	"bytes"
	"encoding/json"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"runtime/metrics"
	"strings"
	"testing"

	"github.com/reknit/reknit/events"
)

const joining = `{"units": [12, 12], "digest": "model", "batch": 8, "microBatch": 2, "state": "copied",
	"job": {"kind": "data-parallel"}, "totalSteps": 9}`

// FuzzCalls makes any call with any body: it is answered, by what the API says or with what is wrong and what to do.
func FuzzCalls(f *testing.F) {
	for _, call := range []struct{ method, path, body string }{
		{"POST", "/v1/join", `{"units": [0]}`}, {"POST", "/v1/next?session=s", `{"order": 1}`}, {"POST", "/v1/leave", `{}`},
		{"POST", "/v1/fail?session=s", `{"reason": "e"}`},
		{"GET", "/v1/state?session=s", ""}, {"PUT", "/v1/store/1/key?session=s&wait=3", "value"}, {"GET", "/v1/session", ""},
		{"DELETE", "/", ""},
	} {
		f.Add(call.method, call.path, []byte(call.body))
	}
	f.Fuzz(func(t *testing.T, method, path string, body []byte) {
		at, err := url.ParseRequestURI(path)
		if err != nil || at.Host != "" || !events.Token(method) || strings.ContainsAny(path, "\x00\r\n ") {
			return // it would not come through net/http
		}
		s := &Server{trainers: map[string]*trainer{}, joining: map[string]bool{}, config: Config{Node: "n1", StateDir: "/nowhere"}}
		request := httptest.NewRequest(method, "/", bytes.NewReader(body))
		request.URL = at
		answer := httptest.NewRecorder()
		s.routes().ServeHTTP(answer, request)
		if answer.Code < 300 {
			t.Errorf("%s %s: %d without a session", method, path, answer.Code)
		}
		var told failure
		isOurs := strings.HasPrefix(answer.Header().Get("Content-Type"), "application/json")
		if isOurs && (json.Unmarshal(answer.Body.Bytes(), &told) != nil || told.What == "" || told.Fix == "") {
			t.Errorf("%s %s: %d with %s, expected what is wrong and what to do", method, path, answer.Code, answer.Body)
		}
	})
}

// FuzzJoining completes any body of a join: the job is one that may be said, or the body is refused by a field's name.
func FuzzJoining(f *testing.F) {
	f.Add([]byte(joining))
	f.Add([]byte(`{"units": [1, 1], "batch": 1, "microBatch": 1, "job": {"optimizerPartitions": 1, "layers": [{"parameterBytes": 1}]}}`))
	f.Add([]byte(`{"units": [9223372036854775807, 1], "job": {}}`))
	f.Add([]byte(`{"units": [1], "job": {"optimizerPartitions": 10000000, "layers": [{"parameterBytes": 1}]}}`))
	f.Add([]byte(`{"units": [1], "job": {"optimizerPartitions": -2, "layers": [{"parameterBytes": 1}]}}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		before := allocated()
		var j Joining
		if err := read(httptest.NewRequest("POST", "/v1/join", bytes.NewReader(body)), &j); err != nil {
			if !strings.HasPrefix(err.Error(), "body: ") {
				t.Errorf("%v: expected that the body is named", err)
			}
			return
		}
		job, err := j.complete(0)
		if err == nil {
			err = (&events.Join{Node: "n1", Incarnation: "any", Address: "any", MemoryBytes: j.MemoryBytes, Samples: j.Samples, Job: job}).Validate()
		}
		if taken, most := allocated()-before, uint64(1<<20+512*len(body)); taken > most {
			t.Errorf("%d bytes had %d reserved, expected at most %d", len(body), taken, most)
		}
		if err == nil && len(job.UnitBytes()) != len(j.Units) {
			t.Errorf("%d units were taken for %d", len(j.Units), len(job.UnitBytes()))
		}
	})
}

func allocated() uint64 {
	sample := []metrics.Sample{{Name: "/gc/heap/allocs:bytes"}}
	metrics.Read(sample)
	return sample[0].Value.Uint64()
}

// FuzzRecord reads any record of what a folder's units are worth: of units that there are, or none.
func FuzzRecord(f *testing.F) {
	whole, err := json.Marshal(firstRecord(3))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(whole)
	f.Add([]byte(`{"generation": 3, "units": [{"first": 2, "end": 9}]}`))
	f.Add([]byte(`{"generation": 3, "units": [{"first": 2, "end": 1}]}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, recordName), text, 0o600); err != nil {
			t.Fatal(err)
		}
		held := &files{dir: &folder{path: dir}, units: make([][]byte, 3)}
		kept, is := held.recorded()
		if !is {
			return
		}
		for _, units := range kept.Units {
			if units.First < 0 || units.First > units.End || units.End > 3 {
				t.Errorf("%v is worth something, of 3 units", units)
			}
		}
		held.note(kept)
		if back, is := held.recorded(); !is || back.Generation != kept.Generation || len(back.Units) != len(kept.Units) {
			t.Errorf("%+v came back as %+v", kept, back)
		}
	})
}
