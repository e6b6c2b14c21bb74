package agent

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/reknit/reknit/events"
)

// trails is what all givers left at a step.
type trails struct {
	newest uint64 // completed steps of the giver that is furthest
	gone   bool   // one of them does not have it
	layers map[string][]events.PreCopied
}

// askWhole asks for the layers at the first step that no giver has passed.
func (p *pursuit) askWhole(ctx context.Context) (left trails, step uint64, err error) {
	for ahead := range uint64(beginnings) {
		left, err = p.ask(ctx, step, true)
		if err != nil || !left.gone {
			return left, step, err
		}
		step = left.newest + ahead + 1
		if last := p.config.TotalSteps; last > 0 {
			step = min(step, last)
		}
		p.mutex.Lock()
		p.base = step
		p.mutex.Unlock()
	}
	return left, step, fmt.Errorf("no step before %d is to be had of all givers", step)
}

// ask asks every giver until each has come to the step, or one of them does not have it.
func (p *pursuit) ask(ctx context.Context, step uint64, whole bool) (trails, error) {
	asking, ctx := errgroup.WithContext(ctx)
	left := trails{layers: map[string][]events.PreCopied{}}
	var mutex sync.Mutex
	for _, giver := range p.givers {
		asking.Go(func() error {
			answer, err := p.askGiver(ctx, giver, events.PreCopyRequest{Negotiation: p.Negotiation, To: p.config.Node, Step: step, Whole: whole})
			if err != nil {
				return fmt.Errorf("%s: %w", giver, err)
			}
			mutex.Lock()
			defer mutex.Unlock()
			left.newest, left.gone = max(left.newest, answer.Newest), left.gone || answer.Gone
			left.layers[giver] = answer.Units
			return nil
		})
	}
	err := asking.Wait() // before left is read
	return left, err
}

// askGiver asks until there is an answer; one that does not understand the negotiation yet has none.
func (p *pursuit) askGiver(ctx context.Context, giver string, request events.PreCopyRequest) (answer events.PreCopyReply, err error) {
	text, err := json.Marshal(request)
	if err != nil {
		panic(err) // plain data
	}
	for {
		began := time.Now()
		asked, cancel := context.WithTimeout(ctx, followTimeout)
		message, err := p.bus.Conn().RequestWithContext(asked, events.PreCopySubject(p.config.Cluster, giver), text)
		cancel()
		answer = events.PreCopyReply{}
		if err == nil {
			if err = json.Unmarshal(message.Data, &answer); err == nil {
				err = answer.Validate()
			}
			if err != nil {
				return answer, err
			}
			p.hear(answer.Newest)
		}
		if answer.Gone || len(answer.Units) > 0 {
			return answer, nil
		}
		if time.Since(began) < followWait && !pause(ctx, followPause) { // else the giver has waited, and its step may end now
			return answer, ctx.Err()
		}
	}
}

func (p *pursuit) hear(newest uint64) {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	p.newest = max(p.newest, newest)
}
