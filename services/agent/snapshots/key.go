package snapshots

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/reknit/reknit/services/agent/retention"
)

// A part's objects lie together: STEP-PLAN/NODE/unit-N, and its manifest beside them when all units are there.
const manifestName = "manifest.json"

func folder(id retention.ID, node string) string {
	return fmt.Sprintf("%020d-%s/%s/", id.Step, strings.TrimPrefix(id.Plan, digestPrefix), node)
}

func unitKey(id retention.ID, node string, unit int) string {
	return fmt.Sprintf("%sunit-%d", folder(id, node), unit)
}

const digestPrefix = "sha256:"

// parseKey tells what an object is. The unit is -1 for a manifest. Ok is false for what a tier did not write.
func parseKey(key string) (id retention.ID, node string, unit int, ok bool) {
	path := strings.Split(key, "/")
	if len(path) != 3 {
		return id, "", 0, false
	}
	step, plan, dashed := strings.Cut(path[0], "-")
	number, err := strconv.ParseUint(step, 10, 64)
	id, node, unit = retention.ID{Step: number, Plan: digestPrefix + plan}, path[1], -1
	if err == nil && path[2] != manifestName {
		unit, err = strconv.Atoi(strings.TrimPrefix(path[2], "unit-"))
	}
	return id, node, unit, err == nil && dashed && folder(id, node)+path[2] == key
}
