package invariants

import (
	"slices"
	"strings"

	"github.com/reknit/reknit/events"
)

// lost finds a unit that is counted as lost while a node that took part in the negotiation has it: a member of the plan
// in force that says it holds it, or a node that was given up, by a claim that nobody contradicts.
var lost = Invariant{"no unit is counted as lost that somebody at hand has", func(log *Log) []Violation {
	var violations []Violation
	for entry, abort := range said[*events.Abort](log, events.Aborted) {
		missing := log.missing(abort.Reason)
		if len(missing) == 0 {
			continue
		}
		at := log.moment(abort.Negotiation, entry.Sequence)
		for _, unit := range missing {
			if node := at.holder(unit); node != "" {
				violations = append(violations, entry.violation("%s is counted as lost, and %s has it", log.rowName(unit), node))
			}
		}
	}
	return violations
}}

// missing returns the units that a negotiation ended for, as its reason names them. It names the first few.
func (l *Log) missing(reason string) []int {
	list, lost := strings.CutPrefix(reason, "no live node holds ")
	job := l.job()
	if !lost || job == nil {
		return nil
	}
	list, _, _ = strings.Cut(list, ", and ")
	names := strings.Split(list, ", ")
	var units []int
	for unit := range job.Units() {
		if slices.Contains(names, l.rowName(unit)) {
			units = append(units, unit)
		}
	}
	return units
}

// moment is what a negotiation had heard when it ended.
type moment struct {
	plan           *events.Plan // in force; nil before the first
	consents       []*events.Consent
	oldest, newest uint64 // step of those who trained under the plan
}

func (l *Log) moment(negotiation string, until uint64) moment {
	at := moment{oldest: ^uint64(0)}
	for _, change := range l.changes {
		if change.committed.Sequence < until {
			at.plan = change.plan
		}
	}
	for entry, consent := range said[*events.Consent](l, events.Consented) {
		if consent.Negotiation == negotiation && consent.Accepted && entry.Sequence < until {
			at.consents = append(at.consents, consent)
		}
	}
	for _, consent := range at.consents {
		if step, trained := at.trained(consent); trained {
			at.oldest, at.newest = min(at.oldest, step), max(at.newest, step)
		}
	}
	return at
}

// trained returns to which step a node trained under the plan in force: one that has a place in it, in the same incarnation,
// or one that was given up, and claims so. A spare of the plan stands where that began, however far the others came.
func (m moment) trained(consent *events.Consent) (step uint64, under bool) {
	if m.plan == nil {
		return 0, false
	}
	if _, placed := m.plan.Holds(consent.Node); !placed {
		return 0, false
	}
	if m.isMember(consent) {
		return consent.Step, true
	}
	for _, claim := range consent.Claims {
		step = max(step, claim.Step)
	}
	return step, len(consent.Claims) > 0 && consent.Trained == m.plan.Generation
}

func (m moment) isMember(consent *events.Consent) bool {
	member, named := m.plan.Member(consent.Node)
	return named && member.Incarnation == consent.Incarnation
}

// holder returns a node that has a unit, or nothing.
func (m moment) holder(unit int) string {
	for _, consent := range m.consents {
		if m.holds(consent, unit) || m.claims(consent, unit) {
			return consent.Node
		}
	}
	return ""
}

func (m moment) holds(consent *events.Consent, unit int) bool {
	return (m.plan == nil || m.isMember(consent)) && slices.ContainsFunc(consent.Holdings, func(h events.Holding) bool {
		return h.Units.First <= unit && unit < h.Units.End && slices.ContainsFunc(h.Steps, m.near)
	})
}

// claims reports whether a node claims a unit that the plan in force has it hold: trained under that plan, or missing
// its commit only.
func (m moment) claims(consent *events.Consent, unit int) bool {
	if m.plan == nil || !slices.Contains(slices.Collect(events.Each(m.plan.UnitsOf(consent.Node))), unit) {
		return false
	}
	return slices.ContainsFunc(consent.Claims, func(claim events.Claim) bool {
		under := consent.Trained == m.plan.Generation || consent.Trained+1 == m.plan.Generation &&
			claim.Step == m.plan.ResumeStep
		return claim.Unit == unit && under && m.near(claim.Step) && !m.contradicted(claim)
	})
}

func (m moment) contradicted(claim events.Claim) bool {
	return slices.ContainsFunc(m.consents, func(other *events.Consent) bool {
		return slices.ContainsFunc(other.Claims, func(c events.Claim) bool {
			return c.Unit == claim.Unit && c.Step == claim.Step && c.Digest != claim.Digest
		})
	})
}

// near reports whether all who train could be at a step: they are two steps apart at most when they are asked.
func (m moment) near(step uint64) bool {
	const apart = 2
	return m.plan == nil || step >= m.plan.ResumeStep &&
		(m.newest == 0 || m.newest <= step+apart && step <= m.oldest+apart)
}
