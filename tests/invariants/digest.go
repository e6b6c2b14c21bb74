package invariants

import (
	"slices"

	"github.com/reknit/reknit/events"
)

// oneDigest finds bytes that are not those of the manifest, and replicas that disagree: a layer at a step has one
// content, whoever computed it under whatever plan.
var oneDigest = Invariant{"a layer at a step has one digest, and is received only as offered", func(log *Log) []Violation {
	var violations []Violation
	states := digests{}
	offered := map[string][]int{} // layers by negotiation
	for _, entry := range log.Events {
		switch payload := entry.Payload.(type) {
		case *events.Offer:
			violations = append(violations, states.agree(entry, payload.Layer, payload.Step, payload.Digest)...)
			offered[payload.Negotiation] = append(offered[payload.Negotiation], payload.Layer)
		case *events.Receipt:
			for _, layer := range payload.Layers {
				violations = append(violations, states.agree(entry, layer.Layer, layer.Step, layer.Digest)...)
				if !slices.Contains(offered[payload.Negotiation], layer.Layer) {
					violations = append(violations, entry.violation("%s received layer %d, which nobody had offered in %s", payload.Node, layer.Layer, payload.Negotiation))
				}
			}
		case *events.Digests:
			for _, layer := range payload.Layers {
				violations = append(violations, states.agree(entry, layer.Layer, payload.Step, layer.Digest)...)
			}
		}
	}
	return violations
}}

type version struct {
	layer int
	step  uint64
}

type content struct {
	digest string
	entry  *Entry
}

type digests map[version]content

// agree notes a layer's digest, or tells that another was told before.
func (d digests) agree(entry *Entry, layer int, step uint64, digest string) []Violation {
	before, known := d[version{layer, step}]
	if !known {
		d[version{layer, step}] = content{digest, entry}
		return nil
	}
	if before.digest == digest {
		return nil
	}
	return []Violation{entry.violation("layer %d at step %d is %s, at %d it was %s", layer, step, digest, before.entry.Sequence, before.digest)}
}
