package invariants

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/reknit/reknit/events"
)

func itoa(sequence uint64) string { return fmt.Sprint(sequence) }

// positions returns where in the story events of a kind stand.
func positions(s *story, kind events.Kind) []int {
	s.t.Helper()
	var found []int
	for i := range s.lines {
		if wireAt(s, i).Type == kind.Type() {
			found = append(found, i)
		}
	}
	if len(found) == 0 {
		s.t.Fatalf("the story has no %s", kind)
	}
	return found
}

func firstOf(s *story, kind events.Kind) int { return positions(s, kind)[0] }

func lastOf(s *story, kind events.Kind) int {
	all := positions(s, kind)
	return all[len(all)-1]
}

func planAt(s *story, generation int) int { return positions(s, events.PlanCommitted)[generation-1] }

func wireAt(s *story, at int) envelope {
	var wire envelope
	_ = json.Unmarshal(s.lines[at].Event, &wire) // what is no event has no type
	return wire
}

func idAt(s *story, at int) string { return wireAt(s, at).ID }

// retell changes the payload of a line.
func retell[T any](s *story, at int, change func(*T)) {
	s.t.Helper()
	wire := wireAt(s, at)
	var payload T
	if err := json.Unmarshal(wire.Data, &payload); err != nil {
		s.t.Fatal(err)
	}
	change(&payload)
	wire.Data = s.encode(payload)
	s.lines[at].Event = s.encode(wire)
}

func (s *story) replan(generation int, change func(*events.Plan)) {
	s.t.Helper()
	retell(s, planAt(s, generation), change)
}

// replace changes the text of a line's event.
func (s *story) replace(at int, old, new string) {
	s.t.Helper()
	if !bytes.Contains(s.lines[at].Event, []byte(old)) {
		s.t.Fatalf("line %d has no %q: %s", at, old, s.lines[at].Event)
	}
	s.lines[at].Event = bytes.ReplaceAll(s.lines[at].Event, []byte(old), []byte(new))
}

func (s *story) remove(at int) { s.lines = slices.Delete(s.lines, at, at+1) }

// again repeats a line at the end of its stream.
func (s *story) again(at int) {
	repeat := s.lines[at]
	last := s.lines[lastOfStream(s, repeat.Stream)]
	repeat.Sequence, repeat.Logged = last.Sequence+1, last.Logged
	wire := wireAt(s, at)
	wire.ID += "-again" // a repeat with the same id has no effect
	repeat.Event = s.encode(wire)
	s.lines = append(s.lines, repeat)
}

func lastOfStream(s *story, stream string) int {
	last := 0
	for i, message := range s.lines {
		if message.Stream == stream {
			last = i
		}
	}
	return last
}

// swap exchanges what two lines say, and leaves the sequences and times where they are.
func (s *story) swap(a, b int) {
	first, second := &s.lines[a], &s.lines[b]
	first.Event, second.Event = second.Event, first.Event
	first.Subject, second.Subject = second.Subject, first.Subject
	if first.Stream != second.Stream {
		first.Stream, second.Stream = second.Stream, first.Stream
		first.Sequence, second.Sequence = second.Sequence, first.Sequence
	}
}

// insert tells something before a line; the sequences behind it move on.
func (s *story) insert(at int, tell func(*story)) {
	rest := slices.Clone(s.lines[at:])
	s.lines = s.lines[:at:at]
	tell(s)
	added := uint64(len(s.lines) - at)
	for _, message := range rest {
		if message.Stream == events.EventStream.Name {
			message.Sequence += added
		}
		s.lines = append(s.lines, message)
	}
}

// rejoin says that a node's process was started anew.
func (s *story) rejoin(node string) {
	s.join(node)
	retell(s, len(s.lines)-1, func(join *events.Join) { join.Incarnation = node + "-2" })
}

// wish says that a node asks to go.
func (s *story) wish(node string) {
	s.node(node, events.LeaveRequested, node, &events.Leave{Node: node}, "")
}

// nobodyHolds is why a negotiation ends where a unit is lost.
const nobodyHolds = "no live node holds layer 2, and there is no snapshot to take it from; waiting for n2"

// claim says that a new incarnation has layer 2 from before it was given up, in the negotiation g3.
func (s *story) claim(node, incarnation, digest string) {
	s.node(node, events.Consented, "g3", &events.Consent{
		Negotiation: "g3", Node: node, Incarnation: incarnation, Accepted: true, Trained: 2,
		Claims: []events.Claim{{Unit: 2, Step: 9, Digest: digest}},
	}, "")
}

// store has every consent name snapshots of all four layers that a plan trained at these steps.
func (s *story) store(plan string, steps ...uint64) {
	for _, at := range positions(s, events.Consented) {
		retell(s, at, func(consent *events.Consent) {
			for _, step := range steps {
				consent.Snapshots = append(consent.Snapshots,
					events.Snapshot{Step: step, Plan: plan, Units: []events.Range{{First: 0, End: 4}}})
			}
		})
	}
}

// differ has the third plan go back to a snapshot that its three members read whole, of which some offered other bytes than others in the
// attempt before.
func (s *story) differ(unit int, givers ...string) {
	var tried events.Plan
	s.replan(3, func(p *events.Plan) {
		p.Snapshot = p.Parent
		s.store(p.Parent, p.ResumeStep)
		tried = *p
	})
	s.insert(firstOf(s, events.Aborted), func(s *story) {
		s.say("/negotiator", events.Scheduled, "g3", &events.Schedule{Negotiation: "g3", StopStep: tried.ResumeStep, Plan: tried}, "")
		s.say("/restorer", events.RestorationFailed, "g3", &events.Failure{Negotiation: "g3", Givers: givers,
			Units: []events.Range{{First: unit, End: unit + 1}}, Reason: "they differ"}, "")
	})
}
