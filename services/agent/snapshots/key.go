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

// What an object of a part is that is no unit.
const (
	isManifest = -1 - iota
	isLeftOver // of a write that was killed, in a folder
)

// parseKey tells what an object is: a unit, or what it is instead. Ok is false for what lies in no part.
func parseKey(key string) (id retention.ID, node string, unit int, ok bool) {
	path := strings.Split(key, "/")
	if len(path) != 3 {
		return id, "", 0, false
	}
	step, plan, dashed := strings.Cut(path[0], "-")
	number, err := strconv.ParseUint(step, 10, 64)
	id, node = retention.ID{Step: number, Plan: digestPrefix + plan}, path[1]
	return id, node, parseName(path[2]), err == nil && dashed && folder(id, node)+path[2] == key
}

func parseName(name string) int {
	if name == manifestName {
		return isManifest
	}
	unit, err := strconv.Atoi(strings.TrimPrefix(name, "unit-"))
	if err != nil || unit < 0 {
		return isLeftOver
	}
	return unit
}
