package bus_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/reknit/reknit/shared/bus"
)

func TestAnOutageIsSaidOnceForEachThatIsRepeated(t *testing.T) {
	bus.SetRepeatWait(t, time.Millisecond)
	server := startServer(t)
	_, b := connect(t, server.URL(), cluster)
	away := b.Conn().StatusChanged(nats.RECONNECTING)
	server.Shutdown()
	<-away
	log := logged(func() {
		ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
		defer cancel()
		if _, err := b.Publish(ctx, lost("n1", "silent")); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("expected that it is repeated to the end, got %v", err)
		}
	})
	if said := strings.Count(log, "publish node.lost is repeated"); said != 1 {
		t.Errorf("it is said %d times:\n%s", said, log)
	}
}

func TestWhatIsRepeatedIsTroubleUntilItIsDone(t *testing.T) {
	bus.SetRepeatWait(t, time.Millisecond)
	ctx, b := newBus(t)
	tries := 0
	err := b.Repeat(ctx, "write down", func(context.Context) error {
		if tries++; tries == 1 {
			return errors.New("the pen is empty")
		}
		if says := b.Trouble(); says != "write down is repeated: the pen is empty" {
			t.Errorf("while it is repeated the trouble is %q", says)
		}
		return nil
	})
	if err != nil || tries != 2 || b.Trouble() != "" {
		t.Errorf("%v after %d tries, and the trouble is still %q", err, tries, b.Trouble())
	}
}
