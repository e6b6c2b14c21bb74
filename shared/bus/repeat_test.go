package bus_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/reknit/reknit/shared/bus"
)

// journal is what is logged, by any goroutine.
type journal struct {
	mutex sync.Mutex
	text  bytes.Buffer
}

func (j *journal) Write(line []byte) (int, error) {
	j.mutex.Lock()
	defer j.mutex.Unlock()
	return j.text.Write(line)
}

func (j *journal) String() string {
	j.mutex.Lock()
	defer j.mutex.Unlock()
	return j.text.String()
}

func TestAnOutageIsSaidOnceForEachThatIsRepeated(t *testing.T) {
	bus.SetRepeatWait(t, time.Millisecond)
	server := startServer(t)
	_, b := connect(t, server.URL(), cluster)
	server.Shutdown()
	for b.Conn().IsConnected() {
		time.Sleep(time.Millisecond)
	}
	log, before := new(journal), slog.Default()
	slog.SetDefault(slog.New(slog.NewTextHandler(log, nil)))
	defer slog.SetDefault(before)
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	if _, err := b.Publish(ctx, lost("n1", "silent")); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("expected that it is repeated to the end, got %v", err)
	}
	if said := strings.Count(log.String(), "publish node.lost is repeated"); said != 1 {
		t.Errorf("it is said %d times:\n%s", said, log.String())
	}
}
