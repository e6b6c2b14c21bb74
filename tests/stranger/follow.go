package stranger

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"io"
	"strings"

	"github.com/nats-io/nats.go"
)

// hear takes one message.
func (s *Stranger) hear(message *nats.Msg) error {
	switch {
	case strings.HasPrefix(message.Subject, "reknit.probe."):
		return s.answerProbe(message)
	case strings.HasPrefix(message.Subject, "reknit.pulse."):
		var peer pulse
		if err := json.Unmarshal(message.Data, &peer); err == nil {
			s.peers[peer.Node] = peer.Step
		}
		return nil
	}
	var event envelope
	if err := json.Unmarshal(message.Data, &event); err != nil {
		return nil // somebody else's nonsense
	}
	if event.Dataref != "" {
		var err error
		if event.Data, err = s.payload(event); err != nil {
			return err
		}
	}
	switch event.Type {
	case "io.reknit.negotiation.opened.v1":
		return follow(event, func(o *opening) error { return s.opened(event, o) })
	case "io.reknit.negotiation.prepared.v1":
		return follow(event, func(o *opening) error { return s.prepared(event, o) })
	case "io.reknit.negotiation.scheduled.v1":
		return follow(event, func(n *schedule) error { return s.scheduled(event, n) })
	case "io.reknit.negotiation.aborted.v1":
		return follow(event, s.aborted)
	case "io.reknit.shard.offered.v1":
		return follow(event, func(o *offer) error { s.offers = append(s.offers, *o); return s.move() })
	case "io.reknit.plan.committed.v1":
		return follow(event, s.committed)
	case "io.reknit.membership.refused.v1":
		return follow(event, s.refused)
	}
	return nil
}

// payload reads data that is too large for its event.
func (s *Stranger) payload(event envelope) ([]byte, error) {
	bucket := "REKNIT_PAYLOADS"
	if event.Type == "io.reknit.plan.committed.v1" {
		bucket = "REKNIT_PLAN_PAYLOADS"
	}
	objects, err := s.stream.ObjectStore(bucket + "_" + s.Cluster)
	if err != nil {
		return nil, err
	}
	data, err := objects.GetBytes(event.Dataref)
	if err != nil || !bytes.HasPrefix(data, []byte{0x1f, 0x8b}) {
		return data, err
	}
	plain, err := gzip.NewReader(bytes.NewReader(data))
	if err != nil {
		return nil, err
	}
	return io.ReadAll(plain)
}

// follow decodes an event's data and acts on it.
func follow[T any](event envelope, act func(*T) error) error {
	var data T
	if err := json.Unmarshal(event.Data, &data); err != nil {
		return err
	}
	return act(&data)
}

// refused hears that the node was given up. If it was while the node lived, the node asks again as a new incarnation,
// and claims what it trained.
func (s *Stranger) refused(refused *refusal) error {
	if refused.Refused != "membership" || refused.Incarnation != s.incarnation || refused.Astray {
		s.Refused(refused.Reason)
		return nil
	}
	if s.plan != nil {
		s.trained = s.plan
	}
	s.plan, s.next, s.opening, s.schedule, s.promise = nil, nil, nil, nil, 0
	return s.join()
}

// claims are the layers that the node trained before it was given up, with their digests at the last steps.
func (s *Stranger) claims() []map[string]any {
	claims := []map[string]any{}
	place, _ := s.trained.place(s.Node)
	for layer := place.First; layer < place.End; layer++ {
		for _, step := range s.versions() {
			claims = append(claims, map[string]any{"unit": layer, "step": step, "digest": digest(s.content(layer, step))})
		}
	}
	return claims
}

// opened consents, and says what the node holds: everything at step 0 before the first plan, nothing as a newcomer,
// what it claims where it was given up while it lived, and otherwise its layers.
func (s *Stranger) opened(event envelope, opened *opening) error {
	if !names(opened.Members, s.Node, s.incarnation) {
		return nil
	}
	s.opening, s.schedule, s.moved, s.offers, s.promise = opened, nil, false, nil, 0
	s.hold = s.hold || opened.Abandon
	holdings := []map[string]any{}
	place, placed := layers{}, false
	if s.plan != nil {
		place, placed = s.newest().place(s.Node)
	}
	switch {
	case opened.Generation == 1 || opened.Begins:
		holdings = append(holdings, map[string]any{"units": layers{0, s.layerCount}, "steps": []uint64{0}})
	case placed && s.hold:
		holdings = append(holdings, map[string]any{"units": place, "steps": s.versions()})
	case placed:
		holdings = append(holdings, map[string]any{"units": place, "steps": s.versions(), "current": true})
	}
	consent := map[string]any{
		"negotiation": opened.Negotiation, "node": s.Node, "incarnation": s.incarnation, "accepted": true, "step": s.step,
		"holdings": holdings,
	}
	if s.plan == nil && s.trained != nil && opened.Abandon {
		consent["claims"], consent["trained"] = s.claims(), s.trained.Generation
	}
	return s.say("negotiation.consented", s.Node, event.ID, consent)
}

func (s *Stranger) newest() *plan {
	if s.next != nil {
		return s.next
	}
	return s.plan
}

// versions returns the completed steps whose state the node can give: the last and the one before.
func (s *Stranger) versions() []uint64 {
	if s.step == 0 {
		return []uint64{0}
	}
	return []uint64{s.step, s.step - 1}
}

// prepared promises where the node will stop: not before what it may have begun.
func (s *Stranger) prepared(event envelope, opened *opening) error {
	if s.opening == nil || s.opening.Negotiation != opened.Negotiation {
		return nil
	}
	stop := s.step
	if s.plan != nil {
		if _, placed := s.plan.place(s.Node); placed {
			s.promise = s.step + 2
			stop = s.promise
		}
	}
	return s.say("negotiation.promised", s.Node, event.ID, map[string]any{
		"negotiation": opened.Negotiation, "node": s.Node, "stopStep": stop,
	})
}

func (s *Stranger) scheduled(event envelope, scheduled *schedule) error {
	if s.opening == nil || s.opening.Negotiation != scheduled.Negotiation {
		return nil
	}
	s.schedule, s.cause, s.promise = scheduled, event.ID, scheduled.StopStep
	return s.move()
}

func (s *Stranger) aborted(aborted *abortion) error {
	if s.opening == nil || s.opening.Negotiation != aborted.Negotiation {
		return nil
	}
	s.opening, s.schedule = nil, nil
	if !aborted.Superseded {
		s.promise = 0
	}
	return nil
}

func (s *Stranger) committed(committed *plan) error {
	if s.plan == nil && !names(committed.Nodes, s.Node, s.incarnation) {
		return nil // a newcomer's own plan is still to come
	}
	s.next, s.opening, s.schedule = committed, nil, nil
	return s.adopt()
}

// adopt takes a committed plan over at its step, or at once where nothing is trained.
func (s *Stranger) adopt() error {
	if s.next == nil || !s.hold && s.trains() && s.step < s.next.ResumeStep {
		return nil
	}
	s.plan, s.next = s.next, nil
	if !names(s.plan.Nodes, s.Node, s.incarnation) {
		s.plan, s.leaving = nil, true
		s.Left()
		return s.pulse()
	}
	s.step, s.hold, s.promise, s.fresh = s.plan.ResumeStep, false, 0, true
	s.Adopted(s.plan.Generation, s.step)
	return s.pulse()
}

func (s *Stranger) trains() bool {
	if s.plan == nil {
		return false
	}
	_, placed := s.plan.place(s.Node)
	return placed
}

// train pretends to complete a step, when everybody else has completed the one before.
func (s *Stranger) train() error {
	if s.hold || !s.trains() || s.promise > 0 && s.step >= s.promise || s.next != nil && s.step >= s.next.ResumeStep {
		return nil
	}
	for _, pipeline := range s.plan.Pipelines {
		for _, stage := range pipeline.Stages {
			if stage.Node != s.Node && s.peers[stage.Node] < s.step {
				return nil
			}
		}
	}
	s.step++
	if err := s.pulse(); err != nil {
		return err
	}
	if s.fresh {
		s.fresh = false
		if err := s.say("plan.activated", s.Node, "", map[string]any{
			"node": s.Node, "generation": s.plan.Generation, "step": s.step,
			"stallSeconds": 0, "stallSteps": 0, "stepSeconds": stepTime.Seconds(),
		}); err != nil {
			return err
		}
	}
	if err := s.move(); err != nil {
		return err
	}
	return s.adopt()
}
