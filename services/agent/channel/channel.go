// Package channel seals what two nodes say to each other through the hub, which sees sizes and times and nothing else.
package channel

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/reknit/reknit/services/agent/mtls"
)

// Kind tells apart what is sealed: words of one kind are not taken for another's.
type Kind byte

// The kinds of what nodes say to each other through the hub.
const (
	Frame   Kind = iota + 1 // of the data plane
	Keep                    // a request to keep a part of a snapshot
	PreCopy                 // a request for units while training goes on
	ViaHub                  // a request to put parts into the hub's store
	kinds
)

// Bytes is how much longer than its text a sealed message is.
const Bytes = 1 + idBytes + numberBytes + tagBytes

const (
	handshakeTimeout = 5 * time.Second
	renewEvery       = time.Second // a channel is made anew at the most
	sessionAge       = time.Hour   // of keys with which anything is said: certificates are looked at again, and GCM has its bound
	mostSessions     = 3           // of a peer: both may have begun one, and messages of the one before are on their way
)

// ErrUnknown says that a message is sealed with keys that this node does not have: it, or the peer, was started again.
var ErrUnknown = errors.New("sealed with unknown keys")

// Channels are those of a node with others. A nil one is that of an installation without keys, which seals nothing. Its
// methods may be called by several goroutines.
type Channels struct {
	context  context.Context
	identity *mtls.Identity
	ask      func(ctx context.Context, node string, words []byte) (answer []byte, err error)
	process  func(node string) string

	mutex sync.Mutex
	peers map[string]*peer
}

// peer is a node, and what is agreed with it.
type peer struct {
	making   sync.Mutex // held while this node makes a channel to it
	made     time.Time  // the last attempt
	sessions []*session // the newest last
	pending  *handshake // that the peer has begun; nil: none
}

// New returns the channels of a node, nil where it has no identity. Ask carries the words of a handshake to a node through the hub, and its
// answer back (Answer). Process tells which process of a node there is now: keys that were agreed with another are not used.
func New(
	ctx context.Context, identity *mtls.Identity, process func(node string) string,
	ask func(ctx context.Context, node string, words []byte) (answer []byte, err error),
) *Channels {
	if identity == nil {
		return nil
	}
	return &Channels{context: ctx, identity: identity, process: process, ask: ask, peers: map[string]*peer{}}
}

// peer returns what is known of a node. Those with whom this one has to do no more are forgotten. The mutex is held.
func (c *Channels) peer(node string) *peer {
	known := c.peers[node]
	if known == nil {
		maps.DeleteFunc(c.peers, func(other string, of *peer) bool {
			if c.identity.IsIn(other) {
				return false
			}
			of.begin(nil)
			return true
		})
		known = &peer{}
		c.peers[node] = known
	}
	return known
}

// newest returns the session with which to say something to a node; nil where there is none.
func (c *Channels) newest(node string) *session {
	process := c.process(node)
	c.mutex.Lock()
	defer c.mutex.Unlock()
	known := c.peers[node]
	if known == nil || len(known.sessions) == 0 {
		return nil
	}
	if last := known.sessions[len(known.sessions)-1]; last.process == process && time.Since(last.made) < sessionAge {
		return last
	}
	return nil
}

// Seal returns words for a node, and whoever else reads them learns their length. It makes a channel where there is none.
func (c *Channels) Seal(node string, kind Kind, text []byte) ([]byte, error) {
	if c == nil {
		return text, nil
	}
	sealing, err := c.to(node)
	if err != nil {
		return nil, err
	}
	return sealing.seal(kind, text), nil
}

// Open returns the words of a node. It makes a channel anew if they are sealed with keys that this node does not have, so that the
// next words are understood.
func (c *Channels) Open(node string, kind Kind, sealed []byte) ([]byte, error) {
	if c == nil {
		return sealed, nil
	}
	opening, err := c.of(node, sealed)
	if err != nil {
		return nil, err
	}
	text, _, err := opening.open(kind, sealed)
	return text, err
}

// OpenRequest returns the words of a request, and what seals the answer to it.
func (c *Channels) OpenRequest(node string, kind Kind, sealed []byte) (text []byte, answer func([]byte) []byte, err error) {
	if c == nil {
		return sealed, func(text []byte) []byte { return text }, nil
	}
	opening, err := c.of(node, sealed)
	if err != nil {
		return nil, nil, err
	}
	text, number, err := opening.open(kind, sealed)
	return text, func(text []byte) []byte { return opening.answer(kind, number, text) }, err
}

// Request says something to a node and returns its answer. Send carries both through the hub.
func (c *Channels) Request(
	ctx context.Context, node string, kind Kind, text []byte, send func(context.Context, []byte) ([]byte, error),
) ([]byte, error) {
	if c == nil {
		return send(ctx, text)
	}
	sealing, err := c.to(node)
	if err != nil {
		return nil, err
	}
	sealed := sealing.seal(kind, text)
	answer, err := send(ctx, sealed)
	if err != nil {
		return nil, err
	}
	return sealing.answered(kind, numberOf(sealed), answer)
}

// to returns the session with a node, a new one where there is none. Nobody's request ends a handshake: far nodes take several round trips.
func (c *Channels) to(node string) (*session, error) {
	if known := c.newest(node); known != nil {
		return known, nil
	}
	c.mutex.Lock()
	peer := c.peer(node)
	c.mutex.Unlock()
	peer.making.Lock()
	defer peer.making.Unlock()
	if known := c.newest(node); known != nil { // made meanwhile
		return known, nil
	}
	return c.make(node, peer)
}

// of returns the session that a message of a node is sealed with.
func (c *Channels) of(node string, sealed []byte) (*session, error) {
	if len(sealed) < Bytes || sealed[0] != sealedWords {
		return nil, fmt.Errorf("words of %s: expected them sealed, which agents of before do not", node)
	}
	if !c.identity.IsIn(node) {
		return nil, fmt.Errorf("words of %s: expected those of a node of the plan or of the negotiation", node)
	}
	c.mutex.Lock()
	defer c.mutex.Unlock()
	peer := c.peer(node)
	for _, known := range peer.sessions {
		if known.id == [idBytes]byte(sealed[1:]) {
			return known, nil
		}
	}
	if time.Since(peer.made) > renewEvery {
		peer.made = time.Now()
		go c.renew(node, peer)
	}
	return nil, fmt.Errorf("words of %s: %w", node, ErrUnknown)
}

func (c *Channels) renew(node string, peer *peer) {
	peer.making.Lock()
	defer peer.making.Unlock()
	if _, err := c.make(node, peer); err != nil {
		slog.Warn("no channel through the hub", "to", node, "error", err)
	}
}

// make agrees on keys with a node. Its caller holds making.
func (c *Channels) make(node string, peer *peer) (*session, error) {
	ctx, cancel := context.WithTimeout(c.context, handshakeTimeout)
	defer cancel()
	h := &handshake{conn: c.identity.Begin(node), process: c.process(node)}
	rand.Read(h.id[:])                    // never fails
	defer func() { _ = h.conn.Close() }() // nobody waits for it any more
	made, err := h.make(ctx, node, func(words []byte) ([]byte, error) { return c.ask(ctx, node, words) })
	if err != nil {
		return nil, fmt.Errorf("channel to %s: %w", node, err)
	}
	c.mutex.Lock()
	defer c.mutex.Unlock()
	peer.add(made)
	return made, nil
}

func (p *peer) add(made *session) {
	p.sessions = append(p.sessions, made)
	p.sessions = slices.Clone(p.sessions[max(0, len(p.sessions)-mostSessions):])
}

// begin replaces the handshake that the peer has begun.
func (p *peer) begin(next *handshake) {
	if p.pending != nil {
		_ = p.pending.conn.Close() // nobody goes on with it
	}
	p.pending = next
}

// IsHandshake reports whether words belong to a handshake, which Answer takes.
func (c *Channels) IsHandshake(words []byte) bool {
	return c != nil && len(words) > 0 && words[0] == handshakeWords
}

// Answer takes a node's words of a handshake, and returns this one's.
func (c *Channels) Answer(node string, words []byte) ([]byte, error) {
	if !c.identity.IsIn(node) {
		return nil, fmt.Errorf("channel of %s: expected a node of the plan or of the negotiation", node)
	}
	id, flights, err := parse(words)
	if err != nil {
		return nil, fmt.Errorf("channel of %s: %w", node, err)
	}
	process := c.process(node)
	c.mutex.Lock()
	defer c.mutex.Unlock()
	peer := c.peer(node)
	h := peer.pending
	if h == nil || h.id != id {
		h = &handshake{id: id, conn: c.identity.Take(node), process: process}
		peer.begin(h)
		err = h.conn.Start(c.context)
	}
	if err == nil {
		flights, err = h.step(flights)
	}
	if err == nil && h.done {
		var made *session
		if made, err = h.session(false); err == nil {
			peer.add(made)
		}
	}
	if err != nil || h.done {
		peer.begin(nil)
	}
	if err != nil {
		return nil, fmt.Errorf("channel of %s: %w", node, err)
	}
	return write(id, flights), nil
}
