package bus_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/reknit/reknit/events"
	"github.com/reknit/reknit/shared/embedded"
)

// three names a server in three ways, as if there were a cluster.
func three(url string) string {
	return strings.Join([]string{url, strings.Replace(url, "127.0.0.1", "localhost", 1), strings.Replace(url, "127.0.0.1", "127.0.0.2", 1)}, ",")
}

func TestStreamsThatTheServerWillNeverMakeAreAnError(t *testing.T) {
	for expected, provision := range map[string]func(url string) error{
		"on the servers of REKNIT_NATS_URL: nats: API error: code=500 err_code=10074 description=replicas > 1 not supported": func(url string) error {
			ctx, b := connect(t, three(url), cluster)
			return b.Provision(ctx)
		},
		"subjects overlap": func(url string) error {
			ctx, b := connect(t, url, cluster)
			other := jetstream.StreamConfig{Name: "OTHER", Subjects: []string{"reknit.>"}, NoAck: true}
			if _, err := b.JetStream().CreateStream(ctx, other); err != nil {
				t.Fatal(err)
			}
			return b.Provision(ctx)
		},
	} {
		err := provision(startServer(t).URL())
		if err == nil || errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), events.EventStream.Name) ||
			!strings.Contains(err.Error(), expected) {
			t.Errorf("expected %q, got %v", expected, err)
		}
	}
}

// logged returns what is logged while something is done.
func logged(do func()) string {
	var log bytes.Buffer
	before := slog.Default()
	slog.SetDefault(slog.New(slog.NewTextHandler(&log, nil)))
	do()
	slog.SetDefault(before)
	return log.String()
}

func TestAStreamWithFewerReplicasThanTheServersNamedIsWarnedOf(t *testing.T) {
	url := startServer(t).URL()
	provision := func(url string) string {
		ctx, b := connect(t, url, cluster)
		return logged(func() {
			if err := b.Provision(ctx); err != nil {
				t.Error(err)
			}
		})
	}
	if log := provision(url); strings.Contains(log, "expected=") {
		t.Errorf("one server: %s", log)
	}
	log := provision(three(url))
	for _, stream := range []string{events.Lane(cluster, events.EventStream.Name), "KV_" + events.Lane(cluster, events.SnapshotBucket)} {
		if !strings.Contains(log, "stream="+stream+" replicas=1 expected=3") {
			t.Errorf("%s is not named in %s", stream, log)
		}
	}
}

func TestStreamsForWhichThereIsNoRoomAreWaitedFor(t *testing.T) {
	server, err := embedded.Start(embedded.Config{StoreDir: t.TempDir(), StoreBytes: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.Shutdown)
	ctx, b := connect(t, server.URL(), cluster)
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	err = b.Provision(ctx)
	if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "insufficient storage") {
		t.Errorf("expected that it waits, got %v", err)
	}
}

// The server here makes what it is asked for, and answers all but the first request for it.
func TestAStreamThatIsMadeWithoutAnAnswerIsFoundAndNotMadeAgain(t *testing.T) {
	plain, err := server.NewServer(&server.Options{Host: "127.0.0.1", Port: server.RANDOM_PORT, NoSigs: true, NoLog: true})
	if err != nil {
		t.Fatal(err)
	}
	plain.Start()
	defer plain.Shutdown()
	ctx, b := connect(t, plain.ClientURL(), cluster)
	_, other := connect(t, plain.ClientURL(), cluster)
	made, asked := map[string]json.RawMessage{}, map[string]int{}
	const ask = "$JS.API.STREAM."
	_, err = other.Conn().Subscribe(ask+">", func(request *nats.Msg) {
		verb, name, _ := strings.Cut(strings.TrimPrefix(request.Subject, ask), ".")
		if verb == "CREATE" {
			made[name] = request.Data
			asked[name]++
			if len(made) == 1 {
				return
			}
		}
		answer := `{"error": {"code": 404, "err_code": 10059}}`
		if config := made[name]; config != nil {
			answer = fmt.Sprintf(`{"config": %s}`, config)
		}
		_ = request.Respond([]byte(answer))
	})
	if err := errors.Join(err, other.Conn().Flush()); err != nil {
		t.Fatal(err)
	}
	if err := b.Provision(ctx); err != nil {
		t.Fatal(err)
	}
	for name, times := range asked {
		if times != 1 {
			t.Errorf("%s was made %d times", name, times)
		}
	}
}
