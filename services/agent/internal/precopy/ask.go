package precopy

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/reknit/reknit/events"
	"github.com/reknit/reknit/services/agent/channel"
	"github.com/reknit/reknit/services/agent/internal/transfer"
)

// offered is what all givers left at a step.
type offered struct {
	newest uint64 // completed steps of the giver that is furthest
	gone   bool   // one of them does not have it
	units  map[string][]events.PreCopied
}

// askWhole asks for whole units at the first step that no giver has passed.
func (r *Receiver) askWhole(ctx context.Context) (left offered, step uint64, err error) {
	for ahead := range uint64(beginningsMax) {
		left, err = r.ask(ctx, step, true)
		if err != nil || !left.gone {
			return left, step, err
		}
		step = left.newest + ahead + 1
		if last := r.totalSteps; last > 0 {
			step = min(step, last)
		}
		r.mutex.Lock()
		r.base = step
		r.mutex.Unlock()
	}
	return left, step, fmt.Errorf("no step before %d is to be had of all givers", step)
}

// ask asks every giver until each has come to the step, or one of them does not have it.
func (r *Receiver) ask(ctx context.Context, step uint64, whole bool) (offered, error) {
	asking, ctx := errgroup.WithContext(ctx)
	left := offered{units: map[string][]events.PreCopied{}}
	request := events.PreCopyRequest{
		Negotiation: r.exchange.Negotiation(), To: r.exchange.Node().Name, Step: step, Whole: whole,
	}
	var mutex sync.Mutex
	for _, giver := range r.givers {
		asking.Go(func() error {
			answer, err := r.askGiver(ctx, giver, request)
			if err != nil {
				return fmt.Errorf("%s: %w", giver, err)
			}
			mutex.Lock()
			defer mutex.Unlock()
			left.newest, left.gone = max(left.newest, answer.Newest), left.gone || answer.Gone
			left.units[giver] = answer.Units
			return nil
		})
	}
	err := asking.Wait() // before left is read
	return left, err
}

// askGiver asks until there is an answer; one that does not understand the negotiation yet has none.
func (r *Receiver) askGiver(
	ctx context.Context, giver string, request events.PreCopyRequest,
) (answer events.PreCopyReply, err error) {
	text, err := json.Marshal(request)
	if err != nil {
		panic(err) // plain data
	}
	node := r.exchange.Node()
	for {
		began := time.Now()
		asked, cancel := context.WithTimeout(ctx, requestTimeout)
		subject := events.PreCopySubject(node.Cluster, giver, node.Bus.Identity().Key)
		reply, err := node.Request(asked, giver, channel.PreCopy, subject, text)
		cancel()
		answer = events.PreCopyReply{}
		if err == nil {
			if err = json.Unmarshal(reply, &answer); err == nil {
				err = answer.Validate()
			}
			if err != nil {
				return answer, err
			}
			r.hear(answer.Newest)
		}
		if answer.Gone || len(answer.Units) > 0 {
			return answer, nil
		}
		waited := time.Since(began) >= requestWait // then the giver did, and its step may end now
		if !waited && !transfer.Pause(ctx, requestPause) {
			return answer, ctx.Err()
		}
	}
}

func (r *Receiver) hear(newest uint64) {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	r.newest = max(r.newest, newest)
}
