package bus

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// Pauses between repeats: short at first, then up to two seconds, each drawn at random from its upper half, so that
// many who failed together do not come again together.
var (
	firstRepeatWait = 50 * time.Millisecond
	lastRepeatWait  = 2 * time.Second
)

const sayRepeats = 10 * time.Second // again, that something is repeated: an outage may last, and its reason is known

// Numbers of JetStream's refusals that nats.go does not name.
const (
	accountExceeded      jetstream.ErrorCode = 10002
	noSuitablePeers      jetstream.ErrorCode = 10005 // too few servers of the cluster are up, or have room
	memoryExceeded       jetstream.ErrorCode = 10028
	storageExceeded      jetstream.ErrorCode = 10047
	replicasNotSupported jetstream.ErrorCode = 10074 // the server is in no cluster
	storeFailed          jetstream.ErrorCode = 10077 // the description says why
	duplicateInProcess   jetstream.ErrorCode = 10158 // the same message id is on its way to the followers
)

// ErrFull says that a stream or bucket takes no more until something in it is old enough to be dropped, or an operator
// raises its bound.
var ErrFull = errors.New("full")

// Repeat calls attempt until it succeeds, fails so that no repeat helps, or ctx ends. The ctx of an attempt also ends
// when the connection comes back: what was under way before is lost, and the next attempt follows at once.
func (b *Bus) Repeat(ctx context.Context, what string, attempt func(context.Context) error) error {
	var said time.Time
	var trouble *string
	defer func() { b.trouble.CompareAndSwap(trouble, nil) }()
	for wait := firstRepeatWait; ; wait = min(2*wait, lastRepeatWait) {
		reconnected := b.connection.Load().lasts
		err := storeFull(until(ctx, reconnected, attempt))
		if err == nil || !transient(err) {
			return err
		}
		if ctx.Err() == nil && time.Since(said) >= sayRepeats {
			slog.WarnContext(ctx, what+" is repeated", "error", err)
			said = time.Now()
			says := fmt.Sprintf("%s is repeated: %v", what, err)
			trouble = &says
			b.trouble.Store(trouble)
		}
		select {
		case <-time.After(wait/2 + rand.N(wait/2)):
		case <-reconnected.Done():
			wait = firstRepeatWait
		case <-ctx.Done():
			return fmt.Errorf("%w, last: %w", ctx.Err(), err)
		}
	}
}

// Trouble says what is repeated and why, of several things one; empty where nothing is.
func (b *Bus) Trouble() string {
	if trouble := b.trouble.Load(); trouble != nil {
		return *trouble
	}
	return ""
}

func until(ctx, reconnected context.Context, attempt func(context.Context) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(reconnected, cancel)()
	return attempt(ctx)
}

// storeFull names the refusals that say that there is no room.
func storeFull(err error) error {
	var api *jetstream.APIError
	if !errors.As(err, &api) {
		return err
	}
	switch api.ErrorCode {
	case storeFailed:
		if api.Description != "maximum bytes exceeded" && api.Description != "maximum messages exceeded" {
			return err
		}
	case accountExceeded, memoryExceeded, storageExceeded:
	default:
		return err
	}
	return fmt.Errorf("%w: %s", ErrFull, api.Description)
}

// transient reports whether a repeat may help: it does not when the server or we said no.
func transient(err error) bool {
	var api *jetstream.APIError
	if errors.As(err, &api) {
		failed := api.Code >= 500 && api.ErrorCode != replicasNotSupported ||
			api.ErrorCode == jetstream.JSErrCodeConsumerExists // of another with the same kit, just now
		return failed || api.ErrorCode == noSuitablePeers || api.ErrorCode == duplicateInProcess || wrongLastSequence(api)
	}
	for _, final := range []error{ErrTaken, ErrFenced, ErrLogReplaced, ErrOtherWords, ErrFull, nats.ErrConnectionClosed, nats.ErrMaxPayload} {
		if errors.Is(err, final) {
			return false
		}
	}
	return !IsRefusal(err)
}

// wrongLastSequence reports that a compare-and-set was refused: another wrote, or a repeat of ours is on its way.
func wrongLastSequence(api *jetstream.APIError) bool {
	return api.ErrorCode == jetstream.JSErrCodeStreamWrongLastSequence ||
		api.ErrorCode == jetstream.JSErrCodeStreamWrongLastSequenceConstant
}
