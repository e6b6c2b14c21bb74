// Package transport carries messages between trainers: over one TCP connection a direction, or through the hub where
// a plan forbids the direct link.
//
// It delivers a step's messages once each and only within that step, whatever connections break in between. It says
// at once when a peer's connection is reset or refused, and after a while when a peer falls silent.
package transport

import (
	"context"
	"fmt"
	"math"
	"net"
	"sync"
	"time"

	"github.com/reknit/reknit/services/agent/links"
	"github.com/reknit/reknit/services/agent/mtls"
)

// Config is what a transport needs of its surroundings.
type Config struct {
	Cluster string
	Node    string
	Listen  string // host:port to listen on

	Identity *mtls.Identity // nil where nodes need not prove who they are

	// Suspect hears of a peer that does not answer: refused is set where its connection was reset or refused.
	Suspect func(node string, refused bool, reason string)
	// Relay sends a frame of at most 1 MiB to a node through the hub.
	Relay func(node string, frame []byte) error
}

// Peer is a node that messages are exchanged with.
type Peer struct {
	Node        string
	Incarnation string
	Address     string
	Relayed     bool // through the hub, not over a connection
}

// aheadBytes bounds what is kept of coming steps and generations: about a thousand activations and a large model's
// slice of gradients. A peer that is further ahead waits.
const aheadBytes = 64 << 20

// Transport is a node's data plane. The methods may be called from any goroutine; those of a step (Begin, Send, Take,
// Receive) from one at a time.
type Transport struct {
	config   Config
	listener net.Listener
	inbox    *inbox
	context  context.Context
	cancel   context.CancelFunc

	sending   sync.WaitGroup // the links
	receiving sync.WaitGroup // the listener, and the connections that others opened
	work      sync.WaitGroup // the rest

	mutex       sync.Mutex
	generation  uint64
	incarnation string
	current     position
	links       map[string]*link // to the peers of the plan in force
	senders     map[string]*sender
	hungerLimit time.Duration
}

// Listen starts a data plane. It ends without a word to its peers when ctx does, and in good order with Close.
func Listen(ctx context.Context, config Config) (*Transport, error) {
	listener, err := net.Listen("tcp", config.Listen)
	if err != nil {
		return nil, fmt.Errorf("data plane: %w", err)
	}
	t := &Transport{
		config: config, listener: listener, inbox: newInbox(aheadBytes),
		links: map[string]*link{}, senders: map[string]*sender{}, hungerLimit: silenceLimit,
	}
	t.context, t.cancel = context.WithCancel(ctx)
	context.AfterFunc(t.context, func() {
		listener.Close()
		t.inbox.close()
	})
	t.receiving.Go(t.accept)
	t.work.Go(t.watch)
	return t, nil
}

// Measure times the link to a node's data plane (links.Measure).
func (t *Transport) Measure(
	ctx context.Context, node, address string, bytes int,
) (roundTripSeconds, bandwidthBytesPerSecond float64, err error) {
	who := links.Hello{Cluster: t.config.Cluster, Node: t.config.Node}
	return links.Measure(ctx, t.config.Identity, who, node, address, bytes)
}

// Address returns the address that is listened on.
func (t *Transport) Address() string { return t.listener.Addr().String() }

// Switch makes the peers of a generation's plan the ones that Send reaches and that are watched. Links to others
// deliver what they still hold, and end.
func (t *Transport) Switch(generation uint64, incarnation string, peers []Peer) {
	t.mutex.Lock()
	defer t.mutex.Unlock()
	again := incarnation != t.incarnation // the hello of a connection says who spoke when it was opened
	t.generation, t.incarnation = generation, incarnation
	before := t.links
	t.links = make(map[string]*link, len(peers))
	for _, peer := range peers {
		t.sender(peer.Node).expect(time.Now(), peer.Incarnation)
		if link := before[peer.Node]; link != nil && link.serves(peer) && !again {
			t.links[peer.Node] = link
			delete(before, peer.Node)
			continue
		}
		link := newLink(t, peer, incarnation)
		t.links[peer.Node] = link
		t.sending.Go(func() { link.run(t.context) })
	}
	for _, link := range before {
		link.leave(generation)
	}
	for node := range t.senders {
		if t.links[node] == nil {
			delete(t.senders, node)
		}
	}
}

// Begin makes a step of the generation the one that messages are sent for and taken from. Messages of older steps are
// dropped.
func (t *Transport) Begin(step uint64) {
	t.mutex.Lock()
	last := t.current
	t.current = position{t.generation, step}
	for _, link := range t.links {
		link.forget(last)
	}
	current := t.current
	t.mutex.Unlock()
	t.inbox.begin(current)
}

// Send queues a message of the step under way. The payload must not be changed afterwards. A node that is no peer is
// an error; a peer that has gone or cannot be reached is not.
func (t *Transport) Send(to string, phase uint32, item uint64, payload []byte) error {
	t.mutex.Lock()
	link, position := t.links[to], t.current
	t.mutex.Unlock()
	if link == nil {
		return fmt.Errorf("message to %q: expected a peer of generation %d", to, position.generation)
	}
	if len(payload) > messageBytes {
		return fmt.Errorf("message of %d bytes to %q: expected at most %d", len(payload), to, messageBytes)
	}
	link.send(Message{Phase: phase, Item: item, Payload: payload, position: position})
	return nil
}

// Take returns a message of a phase of the step under way, if one has arrived.
func (t *Transport) Take(phase uint32) (Message, bool) { return t.inbox.take(phase) }

// Receive waits for a message of a phase of the step under way.
func (t *Transport) Receive(ctx context.Context, phase uint32) (Message, error) {
	return t.inbox.receive(ctx, phase)
}

// closeTimeout is how long Close waits for peers to take what was sent to them, and to go as well.
const closeTimeout = time.Second

// Close delivers what was sent, tells the peers that the node goes on purpose, and ends. The peers' connections are
// left to them to close: one that was closed here might look like a death to a peer that has not read the bye yet.
func (t *Transport) Close() {
	timeout := time.AfterFunc(closeTimeout, t.cancel)
	t.Switch(math.MaxUint64, "", nil)
	t.sending.Wait()
	t.listener.Close()
	t.receiving.Wait()
	timeout.Stop()
	t.cancel()
	t.work.Wait()
}
