package agent

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/reknit/reknit/events"
	"github.com/reknit/reknit/services/agent/channel"
	"github.com/reknit/reknit/services/agent/internal/transfer"
	"github.com/reknit/reknit/services/agent/retention"
	"github.com/reknit/reknit/services/agent/shards"
	"github.com/reknit/reknit/services/agent/snapshots"
)

// keepTime is how long a neighbour may take to fetch a part of a snapshot.
const keepTime = 5 * time.Minute

// lend has a neighbour keep this node's part of a snapshot in its memory. It fetches the part from this node's store.
func (s *Session) lend(ctx context.Context, to string, lent snapshots.Part) error {
	ctx, cancel := context.WithTimeout(ctx, keepTime)
	defer cancel()
	request, offerings := s.lent(lent)
	defer s.store.Withdraw(offerings...)
	text, err := json.Marshal(request)
	if err != nil {
		return err
	}
	subject := events.KeepSubject(s.config.Cluster, to, s.bus.Identity().Key)
	answer, err := s.transferNode().Request(ctx, to, channel.Keep, subject, text)
	if err != nil {
		return fmt.Errorf("%s: %w", to, err)
	}
	var reply events.KeepReply
	if err := json.Unmarshal(answer, &reply); err != nil {
		return fmt.Errorf("%s: %w", to, err)
	}
	if reply.Reason != "" {
		return fmt.Errorf("%s: %s", to, reply.Reason)
	}
	return nil
}

// lent returns a part of a snapshot as a neighbour fetches it, and what the store gives of it: a unit's parts lie in the
// memory of the snapshot.
func (s *Session) lent(part snapshots.Part) (events.Keeping, []*shards.Offering) {
	request := events.Keeping{Node: s.config.Node, Step: part.Step, Plan: part.Plan,
		ConsumedSamples: part.ConsumedSamples, ShardAddress: s.shardAddress()}
	var offerings []*shards.Offering
	for _, unit := range part.Units {
		request.Units = append(request.Units, events.KeptUnit{Unit: unit.Unit, Bytes: int64(len(unit.Data))})
		for data := range slices.Chunk(unit.Data, transfer.PartBytes) {
			offering := s.store.Offer(events.Digest(data), data)
			end := request.Bytes + int64(len(data))
			request.Parts = append(request.Parts, events.Part{Digest: offering.Digest, First: request.Bytes, End: end})
			request.Bytes, offerings = end, append(offerings, offering)
		}
	}
	return request, offerings
}

// answerKeep answers a neighbour that asks this node to keep its part of a snapshot.
func (s *Session) answerKeep(message *nats.Msg) {
	var request events.Keeping
	answer, err := s.requested(message, channel.Keep, &request)
	if err == nil {
		err = s.keep(message, request)
	}
	var reply events.KeepReply
	if err != nil {
		slog.Warn("a neighbour's part of a snapshot is not kept", "node", s.config.Node, "error", err)
		reply.Reason = err.Error()
	}
	if answer != nil { // else nobody is known who asks
		respond(message, reply, answer)
	}
}

func (s *Session) keep(message *nats.Msg, request events.Keeping) error {
	if err := request.Validate(); err != nil {
		return err
	}
	if err := cmp.Or(s.checkSpeaker(message, request.Node), s.checkLender(request.Node, request.ShardAddress)); err != nil {
		return err
	}
	if most := s.config.MemoryBytes; request.Bytes > most {
		return fmt.Errorf("bytes: expected at most the node's memory, %d, got %d", most, request.Bytes)
	}
	ctx, cancel := context.WithTimeout(s.context, keepTime)
	defer cancel()
	if err := s.checkLent(ctx, request); err != nil {
		return err
	}
	return s.snapshots.Keep(ctx, request.Node, func() (snapshots.Part, error) { return s.borrow(ctx, request) })
}

// borrow fetches a neighbour's part of a snapshot from its store.
func (s *Session) borrow(ctx context.Context, request events.Keeping) (part snapshots.Part, err error) {
	fetch, err := shards.NewTransfer([]shards.Source{{
		Name: request.Node, URL: "nats://" + request.ShardAddress, Bucket: events.ShardBucketOf(request.Node),
		Options: func() []nats.Option { return s.identity.Options(request.Node) },
	}})
	if err != nil {
		return part, err
	}
	data := make([]byte, request.Bytes)
	var parts []shards.Part
	for _, part := range request.Parts {
		parts = append(parts, shards.Part{Digest: part.Digest, First: part.First, End: part.End})
	}
	if err := fetch.Add(shards.Layer{Into: data, Parts: parts}); err != nil {
		return part, err
	}
	fetch.Seal()
	if err := fetch.Run(ctx); err != nil {
		return part, err
	}
	part = snapshots.Part{
		ID:              retention.ID{Step: request.Step, Plan: request.Plan},
		ConsumedSamples: request.ConsumedSamples,
	}
	for _, unit := range request.Units {
		part.Units = append(part.Units, snapshots.Unit{Unit: unit.Unit, Data: data[:unit.Bytes]})
		data = data[unit.Bytes:]
	}
	return part, nil
}
