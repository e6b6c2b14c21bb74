package up

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"

	"github.com/reknit/reknit/events"
	"github.com/reknit/reknit/shared/bus"
)

// tellOlder prints that the log is older than what nodes trained, each time that the cluster holds for another such reason: whoever restored
// the store looks here first. It returns once it listens; that ends with ctx.
func tellOlder(ctx context.Context, url, cluster string, out io.Writer) {
	b, err := bus.Connect(ctx, bus.Config{URL: url, Name: "up", Cluster: cluster, Command: true})
	if err == nil {
		context.AfterFunc(ctx, b.Close)
		err = b.Provision(ctx)
	}
	if err == nil {
		said, held := "", []string{events.EventSubject(cluster, events.ClusterHeld, cluster)}
		_, err = b.Follow(ctx, events.EventStream, held, bus.New, func(event events.Event) {
			hold, err := events.Open[events.Hold](event)
			if err != nil || !strings.HasPrefix(hold.Reason, events.OlderLog) || hold.Reason == said {
				return
			}
			said = hold.Reason
			fmt.Fprintln(out, hold.Reason)
		})
	}
	if err != nil && !errors.Is(err, context.Canceled) {
		slog.ErrorContext(ctx, "whether the cluster holds for an older log is not told here; reknit status tells", "error", err)
	}
}
