package stranger

import (
	"encoding/json"
	"fmt"
	"go/parser"
	"go/token"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/reknit/reknit/shared/embedded"
	"github.com/reknit/reknit/tests/invariants"
	"github.com/reknit/reknit/tests/services"
)

// house is Reknit as a stranger finds it: a NATS server and the four services.
type house struct {
	url     string
	cluster string
	inbox   chan *nats.Msg // every event and plan, as any NATS client hears it
	conn    *nats.Conn
}

const patience = 2 * time.Minute

func TestMain(m *testing.M) {
	slog.SetDefault(slog.New(slog.NewTextHandler(io.Discard, nil)))
	if os.Getenv("REKNIT_TEST_LOG") != "" {
		slog.SetDefault(slog.New(slog.NewTextHandler(os.Stderr, nil)))
	}
	os.Exit(m.Run())
}

// build starts the server and the services. The first plan waits for so many nodes.
func build(t *testing.T, cluster string, startNodes int) *house {
	t.Helper()
	server, err := embedded.Start(embedded.Config{StoreDir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.Shutdown)
	h := &house{url: server.URL(), cluster: cluster, inbox: make(chan *nats.Msg, 1<<16)}
	services.Provision(t, h.url, cluster)
	if h.conn, err = nats.Connect(h.url); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(h.conn.Close)
	for _, subject := range []string{"reknit.event.>", "reknit.plan.>"} {
		if _, err := h.conn.ChanSubscribe(subject, h.inbox); err != nil {
			t.Fatal(err)
		}
	}
	if err := h.conn.Flush(); err != nil { // the server listens for us before the services speak
		t.Fatal(err)
	}
	services.Run(t, h.url, cluster, startNodes)
	for range 4 {
		h.await(t, "lease.taken", func(heard) bool { return true })
	}
	return h
}

// heard is an event as a stranger reads it.
type heard struct {
	ID, Type, Source, Subject string
	Data                      map[string]any
}

// await returns the next event of a kind that fits, and forgets those before it.
func (h *house) await(t *testing.T, kind string, fits func(heard) bool) heard {
	t.Helper()
	deadline := time.After(patience)
	for {
		select {
		case message := <-h.inbox:
			var event heard
			if json.Unmarshal(message.Data, &event) == nil && event.Type == "io.reknit."+kind+".v1" && fits(event) {
				return event
			}
		case <-deadline:
			t.Fatalf("no %s within %v", kind, patience)
		}
	}
}

// job returns a job of two layers, in at most so many pipelines.
func job(mostPipelines int) map[string]any {
	layer := map[string]any{"parameterBytes": 20_000, "optimizerBytes": 40_000, "gradientBytes": 40_000,
		"activationBytes": 1000, "outputBytes": 1000, "forwardSeconds": 0.001, "backwardSeconds": 0.002}
	return map[string]any{"digest": digest([]byte("job")), "layers": []map[string]any{layer, layer}, "globalBatch": 8,
		"microBatch": 1,
		"pipelines":  map[string]int{"min": 0, "max": mostPipelines}, "stages": map[string]int{"min": 0, "max": 0}}
}

// judge reads both streams as they are stored and checks the invariants on them.
func (h *house) judge(t *testing.T) {
	t.Helper()
	stream, err := h.conn.JetStream()
	if err != nil {
		t.Fatal(err)
	}
	var lines strings.Builder
	for _, name := range []string{"REKNIT_EVENTS", "REKNIT_PLANS"} {
		info, err := stream.StreamInfo(name + "_" + h.cluster)
		if err != nil {
			t.Fatal(err)
		}
		for sequence := uint64(1); sequence <= info.State.LastSeq; sequence++ {
			message, err := stream.GetMsg(name+"_"+h.cluster, sequence)
			if err != nil {
				t.Fatal(err)
			}
			event := message.Data
			if !json.Valid(event) {
				event = []byte("null")
			}
			fmt.Fprintf(&lines, `{"stream":%q,"sequence":%d,"logged":%q,"subject":%q,"event":%s}`+"\n",
				name, sequence, message.Time.Format(time.RFC3339Nano), message.Subject, event)
		}
	}
	log, err := invariants.Read(strings.NewReader(lines.String()))
	if err != nil {
		t.Fatal(err)
	}
	for _, violation := range log.Check() {
		t.Error(violation)
	}
}

func TestTheStrangerUsesNoCodeOfOurs(t *testing.T) {
	files, err := filepath.Glob("*.go")
	if err != nil || len(files) < 2 {
		t.Fatal(files, err)
	}
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		syntax, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.ImportsOnly)
		if err != nil {
			t.Fatal(err)
		}
		for _, imported := range syntax.Imports {
			path := strings.Trim(imported.Path.Value, `"`)
			if strings.Contains(path, ".") && path != "github.com/nats-io/nats.go" {
				t.Errorf("%s imports %s", name, path)
			}
		}
	}
}
