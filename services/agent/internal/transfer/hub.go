package transfer

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/reknit/reknit/events"
	"github.com/reknit/reknit/services/agent/channel"
	"github.com/reknit/reknit/services/agent/seal"
	"github.com/reknit/reknit/services/agent/shards"
)

// The hub's store without a leader comes back within ten seconds (measured on three servers: 8.3 s at most).
const (
	putAttempts = 10
	askPause    = time.Second            // between two requests to use the hub
	soon        = 100 * time.Millisecond // after one to a giver that has nothing to give yet
)

var putPause = time.Second

// hub is what givers put where they are not reached.
func (e *Exchange) hub() shards.Source {
	node := e.node
	return shards.Source{
		Name: theHub, URL: node.HubURL, Options: node.Bus.Options, API: node.Bus.Identity().API, Bucket: node.Bus.Lane(events.ShardBucket),
		Seal: e.key, Stored: true,
	}
}

// ErrHub says that the hub refused a part: it is full, or its store has no leader. No node is at fault.
var ErrHub = errors.New("the hub does not take it")

// toHub is a part that is put into the hub, sealed for one receiver, or for all on an open installation.
type toHub struct {
	digest string
	data   []byte
	key    seal.Key
}

// putIntoHub stores a part, and tries again while the hub is away. A hub that does not answer at all may answer others: that is
// not ErrHub.
func (e *Exchange) putIntoHub(ctx context.Context, part toHub) error {
	sealed := func() []byte {
		data := slices.Clone(part.data) // what is given stays as it is
		part.key.Apply(part.digest, 0, data)
		return data
	}
	name := part.key.Name(part.digest)
	err := e.node.Bus.PutAs(ctx, events.ShardBucket, name, sealed)
	for attempt := 1; err != nil && attempt < putAttempts && Pause(ctx, putPause); attempt++ {
		err = e.node.Bus.PutAs(ctx, events.ShardBucket, name, sealed)
	}
	if err == nil || errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	return fmt.Errorf("%w: %w", ErrHub, err)
}

// putIntoHub puts a part into the hub's store until the negotiation ends.
func (s *Sender) putIntoHub(ctx context.Context, part toHub) error {
	s.mutex.Lock()
	s.inHub = append(s.inHub, part.key.Name(part.digest))
	s.mutex.Unlock()
	return s.exchange.putIntoHub(ctx, part)
}

// leaveHub removes what was put into the hub's store, which all nodes share: with states of some GiB a few joins would
// fill it before the parts are old. Another node that gives the same content to the next negotiation finds it missing if
// it looked just before; its receiver asks again, and at worst the next attempt has it.
func leaveHub(node Node, names []string) {
	if len(names) == 0 {
		return
	}
	var err error
	for i := 0; err == nil && i < len(names); i++ {
		err = node.Bus.Remove(node.Context, events.ShardBucket, names[i])
	}
	if err != nil && node.Context.Err() == nil {
		slog.Warn("parts are left in the hub until they are old", "node", node.Name, "error", err)
	}
}

// NotYet is what a giver of a secured installation answers that has nothing to give yet. On an open one it does not answer.
const NotYet = "not yet"

// askForHub asks a giver to put what it gives this node into the hub's store, until it says that it will.
func (e *Exchange) askForHub(ctx context.Context, giver string) {
	request, err := json.Marshal(events.ViaHub{Negotiation: e.negotiation, To: e.node.Name, Key: e.key.Text()})
	if err != nil {
		panic(err) // plain data
	}
	for {
		asked, cancel := context.WithTimeout(ctx, askPause)
		subject := events.ShardSubject(e.node.Cluster, giver, e.node.Bus.Identity().Key)
		answer, err := e.node.Request(asked, giver, channel.ViaHub, subject, request)
		cancel()
		pause := askPause
		if string(answer) == NotYet {
			pause = soon
		} else if err == nil {
			return
		}
		if !Pause(ctx, pause) {
			return
		}
	}
}

// SendViaHub begins to put what this node gives a receiver into the hub's store, sealed with a key of the receiver's: what its own gives,
// and from now on what comes there. The first key of a receiver counts until the negotiation ends: with each key the store has one
// more copy of every part. The same key again does nothing new, and another is an error.
func (s *Sender) SendViaHub(receiver string, key seal.Key) error {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	if first, asked := s.viaHub[receiver]; asked {
		if !bytes.Equal(first, key) {
			return fmt.Errorf("key: expected the one with which %s asked first in this negotiation, got another", receiver)
		}
		return nil
	}
	s.viaHub[receiver] = key
	there := slices.DeleteFunc(slices.Clone(s.given), func(part given) bool {
		return !slices.Contains(part.receivers, receiver)
	})
	go s.sendViaHub(there, key)
	return nil
}

func (s *Sender) sendViaHub(parts []given, key seal.Key) {
	for _, part := range parts {
		data, err := s.exchange.node.Store.Get(part.offering.Digest)
		if err == nil {
			err = s.putIntoHub(s.context, toHub{part.offering.Digest, data, key})
		}
		if err != nil {
			if s.context.Err() == nil {
				part.failed(err)
			}
			return
		}
	}
}
