package machine

import (
	"maps"
	"slices"

	"github.com/reknit/reknit/events"
	"github.com/reknit/reknit/services/negotiator/protocol"
)

// claims are the nodes that claim a unit, by the unit, its step and its digest. Replicas have one digest. Kept once, it
// takes memory for each unit of the state and not for each node. A memory beyond the hub's largest message cannot be
// stored.
type claims map[int]map[uint64]map[string][]string

// note keeps what a node claims.
func (c claims) note(node string, claimed []events.Claim) {
	for _, claim := range claimed {
		steps := c[claim.Unit]
		if steps == nil {
			steps = map[uint64]map[string][]string{}
			c[claim.Unit] = steps
		}
		digests := steps[claim.Step]
		if digests == nil {
			digests = map[string][]string{}
			steps[claim.Step] = digests
		}
		if !slices.Contains(digests[claim.Digest], node) {
			digests[claim.Digest] = append(digests[claim.Digest], node)
		}
	}
}

// within returns the claims of steps in a window, in the order of units, steps and digests.
func (c claims) within(window protocol.Window) []protocol.Claim {
	var list []protocol.Claim
	for _, unit := range slices.Sorted(maps.Keys(c)) {
		for _, step := range window.Within(slices.Sorted(maps.Keys(c[unit]))) {
			digests := c[unit][step]
			for _, digest := range slices.Sorted(maps.Keys(digests)) {
				for _, node := range digests[digest] {
					list = append(list, protocol.Claim{Node: node, Unit: unit, Step: step, Digest: digest})
				}
			}
		}
	}
	return list
}

// noteClaims keeps what a node claims, and returns what of it was trained under the plan in force.
func (m *Machine) noteClaims(consent events.Consent) []events.Claim {
	if m.state.Job.Replicas == events.AlikeReplicas {
		consent.Claims = undigested(consent.Claims)
	}
	under, claimed := m.state.Negotiation, m.claimable(consent)
	under.Claims.note(consent.Node, claimed)
	if consent.Trained >= m.state.generation() || len(consent.Claims) == 0 {
		return claimed
	}
	if under.Older == nil {
		under.Older = map[uint64]claims{}
	}
	older := under.Older[consent.Trained]
	if older == nil {
		older = claims{}
		under.Older[consent.Trained] = older
	}
	older.note(consent.Node, consent.Claims)
	return claimed
}

// undigested returns claims of units that are only alike: nobody compares them, one holder is as good as another.
func undigested(claims []events.Claim) []events.Claim {
	claims = slices.Clone(claims)
	for i := range claims {
		claims[i].Digest = ""
	}
	return claims
}

// claimable returns what a node may claim where there is a plan. Units that the plan in force had it hold were trained
// under that very plan. A node that missed the commit, and one to which the plan gives other units or none, has what it held before at the
// step at which the plan came into force, unless the plan went back to what others had. The state of an older generation may have been
// rolled back since.
func (m *Machine) claimable(consent events.Consent) []events.Claim {
	plan := m.state.Plan
	units := slices.Collect(events.Each(plan.UnitsOf(consent.Node)))
	return slices.DeleteFunc(slices.Clone(consent.Claims), func(claim events.Claim) bool {
		trained := consent.Trained == plan.Generation && slices.Contains(units, claim.Unit)
		isOfThen := consent.Trained == plan.Generation || consent.Trained+1 == plan.Generation
		held := !m.state.WentBack && isOfThen && claim.Step == plan.ResumeStep
		return !trained && !held
	})
}

// newest returns the last step of claims; zero where there are none.
func newest(claims []events.Claim) uint64 {
	step := uint64(0)
	for _, claim := range claims {
		step = max(step, claim.Step)
	}
	return step
}
