package stranger

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net"
	"slices"
	"time"

	"github.com/nats-io/nats.go"
)

// content is the make-believe state of a layer at a step.
func (s *Stranger) content(layer int, step uint64) []byte {
	word := fmt.Appendf(nil, "layer %d at step %d; ", layer, step)
	return bytes.Repeat(word, s.layerBytes/len(word)+1)[:s.layerBytes]
}

func digest(data []byte) string { return fmt.Sprintf("sha256:%x", sha256.Sum256(data)) }

// move gives and takes layers once the node stands at the stop step: first what others need, then what it needs
// itself, as soon as everything it needs is offered.
func (s *Stranger) move() error {
	if s.schedule == nil || s.trains() && !s.hold && s.step != s.schedule.StopStep {
		return nil
	}
	if !s.moved {
		s.moved = true
		if err := s.give(); err != nil {
			return err
		}
	}
	return s.take()
}

// give offers each layer that others take from here, with the parts they take.
func (s *Stranger) give() error {
	parts := map[int][]part{}
	for _, transfer := range s.schedule.Plan.Migration.Transfers {
		for _, source := range transfer.Sources {
			if source.Node != s.Node {
				continue
			}
			cut := s.cut(transfer.Layer, source.Shards)
			if !slices.Contains(parts[transfer.Layer], cut) {
				parts[transfer.Layer] = append(parts[transfer.Layer], cut)
			}
		}
	}
	for _, layer := range slices.Sorted(maps.Keys(parts)) {
		state := s.content(layer, s.schedule.StopStep)
		for _, part := range parts[layer] {
			if _, err := s.objects.PutBytes(part.Digest, state[part.First:part.End]); err != nil {
				return err
			}
		}
		if err := s.say("shard.offered", fmt.Sprintf("unit-%d", layer), s.cause, map[string]any{
			"negotiation": s.schedule.Negotiation, "node": s.Node, "unit": layer, "step": s.schedule.StopStep,
			"digest": digest(state), "bytes": len(state), "parts": parts[layer],
		}); err != nil {
			return err
		}
	}
	return nil
}

// cut returns the bytes of a layer that a range of shards is.
func (s *Stranger) cut(layer int, shards layers) part {
	size := s.schedule.Plan.Migration.ShardBytes
	first, end := shards.First*size, min(shards.End*size, s.layerBytes)
	return part{digest(s.content(layer, s.schedule.StopStep)[first:end]), first, end}
}

func (s *Stranger) take() error {
	received := []map[string]any{}
	for _, transfer := range s.schedule.Plan.Migration.Transfers {
		if transfer.To != s.Node {
			continue
		}
		state, err := s.fetch(transfer)
		if state == nil {
			return err
		}
		received = append(received, map[string]any{
			"unit": transfer.Layer, "step": s.schedule.StopStep, "digest": digest(state), "bytes": len(state),
		})
	}
	negotiation := s.schedule.Negotiation
	s.schedule = nil
	if len(received) == 0 {
		return nil
	}
	return s.say("shard.received", s.Node, s.cause, map[string]any{
		"negotiation": negotiation, "node": s.Node, "units": received, "seconds": 0.01,
	})
}

// fetch reads a layer from its sources and verifies it; nothing is returned while an offer is missing.
func (s *Stranger) fetch(transfer transfer) ([]byte, error) {
	state, want := []byte{}, s.content(transfer.Layer, s.schedule.StopStep)
	for _, source := range transfer.Sources {
		offered := s.offered(source.Node, transfer.Layer)
		if offered == nil {
			return nil, nil
		}
		if offered.Digest != digest(want) || !slices.Contains(offered.Parts, s.cut(transfer.Layer, source.Shards)) {
			return nil, fmt.Errorf("layer %d at step %d: expected an offer of %s, got %+v", transfer.Layer, s.schedule.StopStep,
				digest(want), offered)
		}
		data, err := s.objects.GetBytes(s.cut(transfer.Layer, source.Shards).Digest)
		if err != nil {
			return nil, err
		}
		state = append(state, data...)
	}
	if !bytes.Equal(state, want) {
		return nil, fmt.Errorf("layer %d at step %d: expected %s, received %s", transfer.Layer, s.schedule.StopStep,
			digest(want), digest(state))
	}
	return state, nil
}

func (s *Stranger) offered(node string, layer int) *offer {
	for i := range s.offers {
		o := &s.offers[i]
		if o.Negotiation == s.schedule.Negotiation && o.Node == node && o.Layer == layer && o.Step == s.schedule.StopStep {
			return o
		}
	}
	return nil
}

// echo is the data plane: it sends back what comes, so that links can be measured.
func echo(plane net.Listener) {
	for {
		connection, err := plane.Accept()
		if err != nil {
			return
		}
		go func() {
			defer connection.Close()
			io.Copy(connection, connection)
		}()
	}
}

// answerProbe shows that the node lives, and measures a link when asked: the round trip of one byte, then of many.
func (s *Stranger) answerProbe(message *nats.Msg) error {
	var probe struct {
		Target, Address string
		Bytes           int
	}
	if err := json.Unmarshal(message.Data, &probe); err != nil {
		return nil
	}
	answer := map[string]any{"node": s.Node, "incarnation": s.incarnation}
	if probe.Target != "" {
		roundTrip, err := bounce(probe.Address, 1)
		if err == nil && probe.Bytes > 0 {
			var all time.Duration
			all, err = bounce(probe.Address, probe.Bytes)
			answer["measured"] = map[string]any{"from": s.Node, "to": probe.Target,
				"roundTripSeconds": roundTrip.Seconds(), "bandwidthBytesPerSecond": float64(probe.Bytes) / all.Seconds()}
		}
		if err != nil {
			answer = map[string]any{"node": s.Node, "incarnation": s.incarnation, "error": err.Error()}
		}
	}
	data, err := json.Marshal(answer)
	if err != nil {
		return err
	}
	return message.Respond(data)
}

func bounce(address string, bytes int) (time.Duration, error) {
	connection, err := net.DialTimeout("tcp", address, time.Second)
	if err != nil {
		return 0, err
	}
	defer connection.Close()
	began := time.Now()
	connection.SetDeadline(began.Add(time.Second))
	go connection.Write(make([]byte, bytes))
	_, err = io.ReadFull(connection, make([]byte, bytes))
	return time.Since(began), err
}
