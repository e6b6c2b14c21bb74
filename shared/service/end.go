package service

import (
	"context"
	"time"
)

// endsWithin is how long a service that is told to end may take to say what it is at brings about, and then to remember it. Docker kills
// what has not ended within 10 s.
var endsWithin = 4 * time.Second

// outlasting returns a context that ends so long after another.
func outlasting(ctx context.Context) (context.Context, context.CancelFunc) {
	lasting, cancel := context.WithCancel(context.WithoutCancel(ctx))
	long := endsWithin // tests change it
	stop := context.AfterFunc(ctx, func() { time.AfterFunc(long, cancel) })
	return lasting, func() { stop(); cancel() }
}

// leave remembers all that was handled. The next instance may be of another build, which must hear nothing in silence: it would take
// for said what its own machine says of that, and another machine may have said something else.
func (r *runner) leave(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), endsWithin)
	defer cancel()
	r.acknowledgeDone(ctx)
	if r.recent.due == nil {
		return nil
	}
	return r.remember(ctx)
}
