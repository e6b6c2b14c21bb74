package local

import (
	"net/http"

	"github.com/reknit/reknit/events"
)

// Standing answers GET /v1/state.
type Standing struct {
	Node       string `json:"node"`
	Generation uint64 `json:"generation"`
	Step       uint64 `json:"step"`
	Replicas   int    `json:"replicas"`
	Safe       bool   `json:"safe"`
}

func (t *trainer) callState(*http.Request) (any, error) {
	t.mutex.Lock()
	defer t.mutex.Unlock()
	standing := Standing{Node: t.node, Step: t.state.step()}
	if t.plan != nil {
		standing.Generation, standing.Replicas = t.plan.Generation, replicas(t.plan, t.node)
	}
	standing.Safe = standing.Replicas > 1
	return standing, nil
}

// replicas returns how many nodes hold what a node holds: the least, over its units. Zero where it holds nothing.
func replicas(plan *events.Plan, node string) int {
	holders := map[int]int{}
	for _, member := range plan.Nodes {
		for unit := range events.Each(plan.UnitsOf(member.Node)) {
			holders[unit]++
		}
	}
	least := 0
	for unit := range events.Each(plan.UnitsOf(node)) {
		if least == 0 || holders[unit] < least {
			least = holders[unit]
		}
	}
	return least
}
