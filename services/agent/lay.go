package agent

import (
	"errors"
	"log/slog"

	"golang.org/x/sync/errgroup"
)

// run cuts what is exported into parts, puts them into this node's store, and retires what has been taken, until the
// negotiation ends.
func (l *trail) run() {
	select {
	case <-l.before:
	case <-l.moving.Done():
		return
	}
	for {
		select {
		case <-l.moving.Done():
			return
		case left := <-l.left:
			if err := l.lay(left); err != nil && l.moving.Err() == nil {
				l.mutex.Lock()
				l.lose(left.of, err.Error())
				l.mutex.Unlock()
			}
			l.retireTaken()
		}
	}
}

// errBehind says that a receiver takes changes more slowly than training makes them.
var errBehind = errors.New("it takes changes more slowly than they come")

// lay tells the manifest before it stores the parts: who asks for one too early asks again. Nothing of it goes through the hub,
// where it would stay.
func (l *trail) lay(left *exported) error {
	var at leftAt
	for _, share := range left.shares {
		at.layers = append(at.layers, share.manifest())
		at.bytes += int64(len(share.data))
	}
	if !l.reveal(left, at) {
		return errBehind
	}
	puts, ctx := errgroup.WithContext(l.moving)
	puts.SetLimit(putsAtOnce)
	for i, share := range left.shares {
		for _, part := range at.layers[i].Parts {
			l.held[part.Digest]++
			puts.Go(func() error {
				return l.store.PutAs(ctx, part.Digest, share.data[part.First-share.first:part.End-share.first])
			})
		}
	}
	return puts.Wait()
}

// reveal has a receiver hear what is left at a step, unless too much waits for it.
func (l *trail) reveal(left *exported, at leftAt) bool {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	of := left.of
	if left.whole {
		of.bytes = at.bytes
	} else {
		of.waiting += at.bytes
	}
	if of.lost || of.waiting > mostTrailing*of.bytes {
		return false
	}
	of.left[left.step] = at
	l.tell()
	return true
}

// retireTaken retires what no receiver is to take any more.
func (l *trail) retireTaken() {
	l.mutex.Lock()
	taken := l.taken
	l.taken = nil
	l.mutex.Unlock()
	var gone []string
	for _, digest := range taken {
		l.held[digest]--
		if l.held[digest] == 0 {
			delete(l.held, digest)
			gone = append(gone, digest)
		}
	}
	l.retireAll(gone)
}

func (l *trail) retireAll(digests []string) {
	if err := l.store.Retire(l.context, digests...); err != nil && l.context.Err() == nil {
		slog.Warn("parts not retired; they stay until this process ends", "node", l.config.Node, "error", err)
	}
}
