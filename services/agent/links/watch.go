package links

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/reknit/reknit/events"
	"github.com/reknit/reknit/services/agent/mtls"
)

const (
	dialTimeout = 2 * time.Second        // a SYN and its first repeat, after one second
	redialEvery = 250 * time.Millisecond // a peer that is starting is not kept waiting
	byeTimeout  = time.Second            // for a peer to take a byte
	bye         = 'b'
)

// Bounds of those who ask whether a process lives: any node may, one in no plan too.
const mostAsking = 8 // connections of one node at a time

var askTime = 5 * time.Second // for all that is asked on one

// watched is how many peers a node dials. As many dial it, so that it is missed unless seven neighbours die at once.
const watched = 3

// keepAlive finds a peer whose host is gone within 5 s.
var keepAlive = net.KeepAliveConfig{Enable: true, Idle: time.Second, Interval: time.Second, Count: 4}

// Config says whose links a watch looks at.
type Config struct {
	Cluster string
	Node    string
	Listen  string // host:port to listen on

	Identity *mtls.Identity // nil where nodes need not prove who they are

	// Suspect hears of a peer that does not answer: refused is set where its connection was reset or refused.
	Suspect func(node string, refused bool, reason string)
}

// Peer is a node that trains under the same plan.
type Peer struct {
	Node        string
	Incarnation string
	Address     string
	Relayed     bool // must not be dialled
}

// PeersOf returns those with whom a node trains under a plan.
func PeersOf(plan *events.Plan, node string) []Peer {
	var peers []Peer
	for _, member := range plan.Nodes {
		if member.Node != node {
			peers = append(peers, Peer{
				Node: member.Node, Incarnation: member.Incarnation, Address: member.Address,
				Relayed: slices.Contains(plan.Relays, events.PairOf(node, member.Node)),
			})
		}
	}
	return peers
}

// Watch listens for probes and peers, and watches some. Its methods may be called from any goroutine.
type Watch struct {
	config   Config
	listener net.Listener
	context  context.Context
	cancel   context.CancelFunc
	work     sync.WaitGroup

	mutex   sync.Mutex
	process string                // of this node, since it had a plan
	peers   map[string]string     // of the plan in force: incarnations by node
	turn    context.CancelFunc    // ends what watches the peers of the plan before
	open    map[net.Conn]struct{} // to be told a bye
	asking  map[string]int        // by node: probes under way that ask for a process
}

// Listen starts a watch of no peers. It ends without a word to them when ctx does, and in good order with Close.
func Listen(ctx context.Context, config Config) (*Watch, error) {
	listener, err := net.Listen("tcp", config.Listen)
	if err != nil {
		return nil, fmt.Errorf("links: %w", err)
	}
	w := &Watch{config: config, listener: listener, turn: func() {}, open: map[net.Conn]struct{}{}, asking: map[string]int{}}
	w.context, w.cancel = context.WithCancel(ctx)
	context.AfterFunc(w.context, func() { listener.Close() })
	w.work.Go(w.accept)
	return w, nil
}

// Address returns the address that is listened on.
func (w *Watch) Address() string { return w.listener.Addr().String() }

// Measure times the link to a node at an address.
func (w *Watch) Measure(ctx context.Context, node, address string, bytes int) (
	roundTripSeconds, bandwidthBytesPerSecond float64, err error,
) {
	return Measure(ctx, w.config.Identity, Hello{Cluster: w.config.Cluster, Node: w.config.Node}, node, address, bytes)
}

// Ask returns no error where the process of an incarnation answers at an address. One that has taken its port, or its name, does not.
func (w *Watch) Ask(ctx context.Context, node, incarnation, address string) error {
	who := Hello{Cluster: w.config.Cluster, Node: w.config.Node, Asks: processOf(incarnation)}
	_, _, err := Measure(ctx, w.config.Identity, who, node, address, 0)
	return err
}

// processOf returns the part of an incarnation that all those of one process have: it is theirs, a hyphen and which of them it is.
func processOf(incarnation string) string {
	if last := strings.LastIndexByte(incarnation, '-'); last > 0 {
		return incarnation[:last]
	}
	return incarnation
}

// Switch watches the peers of a new plan, the node itself not among them.
func (w *Watch) Switch(incarnation string, peers []Peer) {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	w.turn()
	ctx, cancel := context.WithCancel(w.context)
	w.turn, w.peers, w.process = cancel, map[string]string{}, cmp.Or(processOf(incarnation), w.process)
	for _, peer := range peers {
		w.peers[peer.Node] = peer.Incarnation
	}
	for _, peer := range next(w.config.Node, peers) {
		w.work.Go(func() { w.follow(ctx, incarnation, peer) })
	}
}

// next returns the peers that a node dials: those after it in the order of ids, from the last to the first.
func next(node string, peers []Peer) []Peer {
	ring := slices.DeleteFunc(slices.Clone(peers), func(peer Peer) bool { return peer.Relayed })
	slices.SortFunc(ring, func(a, b Peer) int { return strings.Compare(a.Node, b.Node) })
	after := slices.IndexFunc(ring, func(peer Peer) bool { return peer.Node > node })
	ring = slices.Concat(ring[max(0, after):], ring[:max(0, after)])
	return ring[:min(watched, len(ring))]
}

// follow keeps a connection to a peer until ctx ends.
func (w *Watch) follow(ctx context.Context, incarnation string, peer Peer) {
	who := Hello{Cluster: w.config.Cluster, Node: w.config.Node, Incarnation: incarnation}
	dialer := net.Dialer{Timeout: dialTimeout, KeepAliveConfig: keepAlive}
	for ctx.Err() == nil {
		connection, err := Dial(ctx, w.config.Identity, dialer, who, peer.Node, peer.Address)
		if err == nil {
			err = w.listenTo(ctx, connection)
			connection.Close()
		}
		if err == nil {
			return // it went on purpose, or to another plan
		}
		w.suspect(peer.Node, peer.Incarnation, err)
		select {
		case <-ctx.Done():
		case <-time.After(redialEvery):
		}
	}
}

// listenTo waits for the end of a connection. It returns nil after a bye, and where ctx ended first: then it has said
// one.
func (w *Watch) listenTo(ctx context.Context, connection net.Conn) error {
	w.mutex.Lock()
	w.open[connection] = struct{}{}
	w.mutex.Unlock()
	defer func() {
		w.mutex.Lock()
		delete(w.open, connection)
		w.mutex.Unlock()
	}()
	defer context.AfterFunc(ctx, func() { w.leave(connection) })()
	var word [1]byte
	_, err := io.ReadFull(connection, word[:])
	switch {
	case err == nil && word[0] == bye, ctx.Err() != nil:
		return nil
	case err == nil:
		return fmt.Errorf("expected nothing or a bye, got %q", word[0])
	}
	return err
}

// leave ends a connection: with a bye, unless the watch ends without a word.
func (w *Watch) leave(connection net.Conn) {
	if w.context.Err() == nil {
		connection.SetWriteDeadline(time.Now().Add(byeTimeout))
		_, _ = connection.Write([]byte{bye}) // a peer that does not take it is gone
	}
	connection.Close()
}

// refusals are what a peer's kernel says when its process is gone.
var refusals = []error{io.EOF, io.ErrUnexpectedEOF, syscall.ECONNRESET, syscall.ECONNREFUSED, syscall.EPIPE}

// suspect reports a peer of the plan in force whose connection ended.
func (w *Watch) suspect(node, incarnation string, err error) {
	w.mutex.Lock()
	current := w.peers[node] == incarnation && incarnation != ""
	w.mutex.Unlock()
	if !current || w.context.Err() != nil {
		return
	}
	refused := slices.ContainsFunc(refusals, func(refusal error) bool { return errors.Is(err, refusal) })
	w.config.Suspect(node, refused, err.Error())
}

// accept serves connections until the listener closes.
func (w *Watch) accept() {
	for {
		connection, err := w.listener.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil { // out of file descriptors, for example: that passes
			slog.Warn("links: connection not accepted", "error", err)
			select {
			case <-w.context.Done():
			case <-time.After(redialEvery):
			}
			continue
		}
		w.work.Go(func() { w.serve(connection) })
	}
}

func (w *Watch) serve(connection net.Conn) {
	defer connection.Close()
	defer context.AfterFunc(w.context, func() { connection.Close() })() // who says nothing does not hold up the end
	hello, secured, reader, err := Accept(w.context, w.config.Identity, w.config.Cluster, connection)
	if err != nil {
		w.refused(connection, err)
		return
	}
	if hello.Asks != "" { // by whoever is a node: a process that is in no plan any more tells that it lives
		if w.asked(hello) {
			connection.SetDeadline(time.Now().Add(askTime))
			answerProbes(secured, reader, 0, roundTrips)
			w.answered(hello)
		}
		return
	}
	release, err := w.config.Identity.Hold(w.context, hello.Node, func() { connection.Close() })
	if err != nil {
		w.refused(connection, err)
		return
	}
	defer release()
	if hello.Probe {
		AnswerProbes(secured, reader)
		return
	}
	if tcp, ok := connection.(*net.TCPConn); ok {
		_ = tcp.SetKeepAliveConfig(keepAlive) // without it silence is found by heartbeats
	}
	if err := w.listenTo(w.context, secured); err != nil {
		w.suspect(hello.Node, hello.Incarnation, err)
	}
}

func (w *Watch) refused(connection net.Conn, err error) {
	level := slog.LevelDebug // whoever tries the port, or ends
	if errors.Is(err, mtls.ErrRefused) {
		level = slog.LevelWarn
	}
	slog.Log(w.context, level, "links: connection refused", "from", connection.RemoteAddr(), "error", err)
}

// asked reports whether a probe that asks for a process is answered: it is for this one, and few of its node's are under way.
func (w *Watch) asked(probe Hello) bool {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	if probe.Asks != w.process || w.asking[probe.Node] >= mostAsking {
		return false
	}
	w.asking[probe.Node]++
	return true
}

func (w *Watch) answered(probe Hello) {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	if w.asking[probe.Node]--; w.asking[probe.Node] == 0 {
		delete(w.asking, probe.Node)
	}
}

// Close says bye to all and ends.
func (w *Watch) Close() {
	w.mutex.Lock()
	for connection := range w.open {
		w.leave(connection)
	}
	w.mutex.Unlock()
	w.cancel()
	w.work.Wait()
}
