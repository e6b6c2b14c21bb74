package dev

import (
	"time"

	"github.com/reknit/reknit/events"
	"github.com/reknit/reknit/services/reknit/tell"
)

// serviceRestart is the kind of change that the kill of a service is.
const serviceRestart = "service-restart"

// Change is what became of one action of the script.
type Change struct {
	Action       string   `json:"action"`
	Kind         string   `json:"kind"` // failure, join, leave, connect-link, disconnect-link or service-restart
	Step         uint64   `json:"step"` // completed steps when it was done
	AtSeconds    float64  `json:"atSeconds"`
	Healed       bool     `json:"healed"`
	Refused      string   `json:"refused,omitempty"`   // why it was not done
	Overtaken    bool     `json:"overtaken,omitempty"` // its node was killed before it could be done
	UnderWay     []string `json:"underWay,omitempty"`  // kinds of the changes that were not healed when it was done
	Generation   uint64   `json:"generation,omitempty"`
	Negotiations int      `json:"negotiations,omitempty"` // opened until one was committed

	// Seconds from the action until each phase ended.
	DetectedSeconds    float64 `json:"detectedSeconds"`    // the fact or request is in the log
	PlannedSeconds     float64 `json:"plannedSeconds"`     // plan, moves and rounds are decided
	TransferredSeconds float64 `json:"transferredSeconds"` // every layer is verified at its new holder
	CommittedSeconds   float64 `json:"committedSeconds"`
	NextStepSeconds    float64 `json:"nextStepSeconds"` // every trainer of the plan completed a step under it

	StallSeconds float64 `json:"stallSeconds"` // the longest that a trainer saw, beyond one usual step
	StallSteps   float64 `json:"stallSteps"`   // the same in usual steps
	BytesMoved   int64   `json:"bytesMoved"`
	NaiveBytes   int64   `json:"naiveBytes"`           // a restart: every place reads its layers anew
	LeastBytes   int64   `json:"leastBytes,omitempty"` // of any assignment of the plan's places; left out: none, or not known
	Sources      int     `json:"sources"`              // neighbours that layers came from
	Policy       string  `json:"policy,omitempty"`
	Shape        string  `json:"shape,omitempty"`

	done    time.Time
	node    string
	peer    string
	service string
	cause   string // id of the fact or request
	before  uint64 // generation in force when it was done

	leastKnown bool
}

func (c *Change) matches(change events.Change) bool {
	if c.service != "" || c.Kind != change.Kind {
		return false
	}
	if c.peer == "" {
		return c.node == change.Node
	}
	return events.PairOf(c.node, c.peer) == events.PairOf(change.Node, change.Peer)
}

// sourcesOf counts the neighbours that layers come from: to a joining node, or else to anybody.
func sourcesOf(plan events.Plan, node string) int {
	from, toNode := map[string]bool{}, map[string]bool{}
	for _, transfer := range plan.Migration.Transfers {
		for _, source := range transfer.Sources {
			from[source.Node] = true
			if transfer.To == node {
				toNode[source.Node] = true
			}
		}
	}
	if len(toNode) > 0 {
		return len(toNode)
	}
	return len(from)
}

// policyOf names the policy of a plan; one that reroutes nothing keeps the plan before.
func policyOf(plan events.Plan) string {
	if tell.IsKept(plan) {
		return "kept"
	}
	return plan.Policy
}
