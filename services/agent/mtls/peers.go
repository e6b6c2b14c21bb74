package mtls

import (
	"context"
	"fmt"
	"sync"
	"time"
)

const (
	admitPatience = time.Second           // for a node that is not in yet: what lets it in is heard here later than there
	admitEvery    = 20 * time.Millisecond // is looked whether it is in meanwhile
)

// recheckEvery is how often it is looked whether those who are connected are still in. A node that is not at two looks in a row is cut
// off: one that leaves says its last words, and a negotiation that ends is followed by its plan.
var recheckEvery = time.Second

// peers are those with whom a node has to do, and their connections.
type peers struct {
	mutex sync.Mutex
	in    func(node string) bool
	held  map[*held]struct{}
	looks bool // a look is due
}

// held is a connection that a node opened to this one.
type held struct {
	node  string
	leave func()
	out   bool // at the last look
}

// Admit has only nodes in that this one has to do with now, by its plan or its negotiation. Before it is called nobody is. in may be
// called by any goroutine.
func (i *Identity) Admit(in func(node string) bool) {
	if i == nil {
		return
	}
	i.peers.mutex.Lock()
	defer i.peers.mutex.Unlock()
	i.peers.in = in
}

func (p *peers) isIn(node string) bool {
	p.mutex.Lock()
	in := p.in
	p.mutex.Unlock()
	return in != nil && in(node)
}

// Hold returns no error once a node is in that has opened a connection, and calls leave when it is no longer, unless release was called
// before.
func (i *Identity) Hold(ctx context.Context, node string, leave func()) (release func(), err error) {
	if i == nil {
		return func() {}, nil
	}
	if err := i.peers.await(ctx, node); err != nil {
		return nil, err
	}
	return i.peers.hold(&held{node: node, leave: leave}), nil
}

func (p *peers) await(ctx context.Context, node string) error {
	ctx, cancel := context.WithTimeout(ctx, admitPatience)
	defer cancel()
	for !p.isIn(node) {
		select {
		case <-ctx.Done():
			return fmt.Errorf("%w: expected a node of the plan in force or of the negotiation under way, got %s", ErrRefused, node)
		case <-time.After(admitEvery):
		}
	}
	return nil
}

func (p *peers) hold(one *held) (release func()) {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	if p.held == nil {
		p.held = map[*held]struct{}{}
	}
	p.held[one] = struct{}{}
	p.lookLater()
	return func() {
		p.mutex.Lock()
		defer p.mutex.Unlock()
		delete(p.held, one)
	}
}

// lookLater has the next look come, as long as anybody is connected. Called with the mutex held.
func (p *peers) lookLater() {
	if !p.looks && len(p.held) > 0 {
		p.looks = true
		time.AfterFunc(recheckEvery, p.look)
	}
}

// look cuts off who is no longer in. O(connections).
func (p *peers) look() {
	p.mutex.Lock()
	in, known := p.in, make([]*held, 0, len(p.held))
	for one := range p.held {
		known = append(known, one)
	}
	p.mutex.Unlock()
	var gone []*held
	for _, one := range known {
		out := !in(one.node) // takes locks of its own
		if out && one.out {
			gone = append(gone, one)
		}
		one.out = out
	}
	p.mutex.Lock()
	for _, one := range gone {
		delete(p.held, one)
	}
	p.looks = false
	p.lookLater()
	p.mutex.Unlock()
	for _, one := range gone {
		one.leave()
	}
}

// IsIn reports whether this node has to do with another now.
func (i *Identity) IsIn(node string) bool { return i.peers.isIn(node) }
