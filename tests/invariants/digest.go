package invariants

import (
	"slices"

	"github.com/reknit/reknit/events"
)

// OneDigest finds bytes that are not those of the manifest, and replicas that disagree: a row of the state at a
// step has one content, whoever computed it under whatever plan. Training that begins anew makes other ones: once that is committed, what
// is told of before counts no more. Offers for a beginning that comes to nothing, as of a snapshot that is not whole, never count.
var OneDigest = Invariant{"a layer at a step has one digest, and is received only as offered", func(log *Log) []Violation {
	var violations []Violation
	states := digests{log: log, known: map[version]content{}}
	offered := map[string][]int{}                 // rows by negotiation
	givenUp, over := uint64(0), map[string]bool{} // newest generation of before, and negotiations
	var begins *events.Opening                    // by which training began last, or is to
	var before map[version]content                // what was known then
	for _, entry := range log.Events {
		switch payload := entry.Payload.(type) {
		case *events.JobReset:
			givenUp, begins = payload.Generation, nil
			for negotiation := range offered {
				over[negotiation] = true
			}
			clear(states.known)
		case *events.Opening:
			offered[payload.Negotiation] = []int{}
			if isBeginning(payload) {
				begins, before, states.known = payload, states.known, map[version]content{}
			}
		case *events.Abort:
			if begins != nil && payload.Negotiation == begins.Negotiation {
				over[payload.Negotiation], states.known, begins = true, before, nil
			}
		case *events.Offer:
			offered[payload.Negotiation] = append(offered[payload.Negotiation], payload.Unit)
			if !over[payload.Negotiation] {
				violations = append(violations, states.agree(entry, payload.Unit, payload.Step, payload.Digest)...)
			}
		case *events.Receipt:
			for _, layer := range payload.Units {
				if !over[payload.Negotiation] {
					violations = append(violations, states.agree(entry, layer.Unit, layer.Step, layer.Digest)...)
				}
				if !slices.Contains(offered[payload.Negotiation], layer.Unit) {
					violations = append(violations, entry.violation("%s received %s, which nobody had offered in %s", payload.Node,
						log.rowName(layer.Unit), payload.Negotiation))
				}
			}
		case *events.Digests:
			if payload.Generation <= givenUp || begins != nil && payload.Generation < begins.Generation {
				continue
			}
			for _, layer := range payload.Units {
				violations = append(violations, states.agree(entry, layer.Unit, payload.Step, layer.Digest)...)
			}
		}
	}
	return violations
}}

type version struct {
	row  int
	step uint64
}

type content struct {
	digest string
	entry  *Entry
}

type digests struct {
	log   *Log
	known map[version]content
}

// agree notes a row's digest, or tells that another was told before.
func (d digests) agree(entry *Entry, row int, step uint64, digest string) []Violation {
	if job := d.log.job(); job != nil && job.Replicas == events.AlikeReplicas {
		return nil // nobody compares them
	}
	before, known := d.known[version{row, step}]
	if !known {
		d.known[version{row, step}] = content{digest, entry}
		return nil
	}
	if before.digest == digest {
		return nil
	}
	return []Violation{entry.violation("%s at step %d is %s, at %d it was %s", d.log.rowName(row), step, digest,
		before.entry.Sequence, before.digest)}
}
