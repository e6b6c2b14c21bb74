// Package transfer moves units between nodes where all are paused: a sender cuts what its trainer exports into
// parts and serves them from the node's store, a receiver fetches a unit's parts from all who hold it at a time,
// and verifies them.
package transfer

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/reknit/reknit/events"
	"github.com/reknit/reknit/services/agent/channel"
	"github.com/reknit/reknit/services/agent/machine"
	"github.com/reknit/reknit/services/agent/mtls"
	"github.com/reknit/reknit/services/agent/seal"
	"github.com/reknit/reknit/services/agent/shards"
	"github.com/reknit/reknit/shared/bus"
)

const (
	reachTimeout = 2 * time.Second // for a neighbour's store to accept a connection; then it is asked to use the hub
	theHub       = "the hub"       // as a source; no node's id has a space
)

// Node is what the two ends of an exchange need of the node that they run on.
type Node struct {
	Context     context.Context // ends when the node needs its store no more
	Name        string
	Cluster     string
	HubURL      string
	MemoryBytes int64 // what training may use
	Bus         *bus.Bus
	Store       *shards.Store
	Identity    *mtls.Identity    // to other nodes
	Channels    *channel.Channels // to other nodes through the hub
}

// Request asks a node something through the hub, sealed, and returns the answer.
func (n Node) Request(ctx context.Context, node string, kind channel.Kind, subject string, text []byte) ([]byte, error) {
	return n.Channels.Request(ctx, node, kind, text, func(ctx context.Context, words []byte) ([]byte, error) {
		answer, err := n.Bus.Conn().RequestWithContext(ctx, subject, words)
		if err != nil {
			return nil, err
		}
		return answer.Data, nil
	})
}

// Exchange is what a negotiation asks a node to give and to take.
type Exchange struct {
	node        Node
	negotiation string
	migration   events.Migration
	relays      []events.Pair   // links that must not be used
	members     []events.Member // of the negotiation, leavers included
	key         seal.Key        // of what is put into the hub for this node; nil on an open installation
}

// NewExchange returns a node's part of an exchange.
func NewExchange(node Node, exchange machine.Exchange) *Exchange {
	e := &Exchange{
		node: node, negotiation: exchange.Negotiation, migration: exchange.Plan.Migration,
		relays: exchange.Plan.Relays, members: exchange.Members,
	}
	if node.Channels != nil {
		e.key = seal.New()
	}
	return e
}

// Node returns the node that the exchange is seen from.
func (e *Exchange) Node() Node { return e.node }

// Negotiation returns the id of the negotiation.
func (e *Exchange) Negotiation() string { return e.negotiation }

// Migration returns all that moves.
func (e *Exchange) Migration() events.Migration { return e.migration }

// Wanted returns the transfers to this node.
func (e *Exchange) Wanted() []events.Transfer {
	return slices.DeleteFunc(slices.Clone(e.migration.Transfers), func(transfer events.Transfer) bool {
		return transfer.To != e.node.Name
	})
}

// Givers returns who is to give this node something.
func (e *Exchange) Givers() []string {
	var givers []string
	for _, transfer := range e.Wanted() {
		for _, source := range transfer.Sources {
			if !slices.Contains(givers, source.Node) {
				givers = append(givers, source.Node)
			}
		}
	}
	return givers
}

// Given returns the units that this node gives, in order of their first transfer.
func (e *Exchange) Given() []int {
	var units []int
	for _, transfer := range e.migration.Transfers {
		if _, gives := ShardsOf(e.node.Name, transfer); gives && !slices.Contains(units, transfer.Unit) {
			units = append(units, transfer.Unit)
		}
	}
	return units
}

// throughHub reports whether two nodes cannot or must not reach each other's stores.
func (e *Exchange) throughHub(giver, receiver string) bool {
	return e.storeOf(giver) == "" || e.storeOf(receiver) == "" || slices.Contains(e.relays, events.PairOf(giver, receiver))
}

func (e *Exchange) storeOf(node string) string {
	for _, member := range e.members {
		if member.Node == node {
			return member.ShardAddress
		}
	}
	return ""
}

// Reach returns which of the givers' stores may be used, and answer.
func (e *Exchange) Reach(ctx context.Context) map[string]bool {
	givers := e.Givers()
	answers := make([]bool, len(givers))
	var dials sync.WaitGroup
	for i, giver := range givers {
		dials.Go(func() { answers[i] = !e.throughHub(giver, e.node.Name) && e.answers(ctx, giver) })
	}
	dials.Wait()
	reached := map[string]bool{}
	for i, giver := range givers {
		reached[giver] = answers[i]
	}
	return reached
}

func (e *Exchange) answers(ctx context.Context, giver string) bool {
	conn, err := nats.Connect("nats://"+e.storeOf(giver), append(e.node.Identity.Options(giver),
		nats.Timeout(reachTimeout), nats.NoReconnect())...)
	if err != nil {
		slog.WarnContext(ctx, "a neighbour's shard store is out of reach; its shards go through the hub",
			"node", e.node.Name, "neighbour", giver, "error", err)
		return false
	}
	conn.Close()
	return true
}

// Sources returns the stores of the givers that are reached.
func (e *Exchange) Sources(reached map[string]bool) []shards.Source {
	var sources []shards.Source
	for _, member := range e.members {
		if reached[member.Node] {
			sources = append(sources, shards.Source{
				Name: member.Node, URL: "nats://" + member.ShardAddress, Bucket: events.ShardBucketOf(member.Node),
				BytesPerSecond: e.rateOf(member.Node),
				Options:        func() []nats.Option { return e.node.Identity.Options(member.Node) },
			})
		}
	}
	return sources
}

// rateOf returns what the plan says that the link from a giver carries; zero where it was not measured.
func (e *Exchange) rateOf(giver string) float64 {
	for _, transfer := range e.Wanted() {
		for _, source := range transfer.Sources {
			if source.Node == giver {
				return source.BytesPerSecond
			}
		}
	}
	return 0
}

// Received tells what came from whom.
func Received(progress shards.Progress) []events.Received {
	var list []events.Received
	for _, source := range progress.Sources {
		if source.Bytes == 0 {
			continue
		}
		from := source.Name
		if from == theHub {
			from = ""
		}
		list = append(list, events.Received{From: from, Bytes: source.Bytes, BytesPerSecond: source.BytesPerSecond,
			StartSeconds: source.StartSeconds})
	}
	return list
}

// Pause waits and reports whether ctx still lives.
func Pause(ctx context.Context, duration time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(duration):
		return true
	}
}
