package snapshots

import (
	"fmt"
	"strconv"
	"strings"
	"time"

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

// The kinds of a part's objects that are no units.
const (
	isManifest = -1 - iota
	isLeftOver // of a write that was killed, in a folder
)

// beganWith begins the names of the marks that tell under which plans parts were written: a mark is there before the first part is. It
// stands behind all parts where a bucket is listed, in order: a listing that has a part has the mark of its plan.
const beganWith = "plan-"

// markOf is the key of a plan's mark: plan-NANOSECONDS-DIGEST.
func markOf(begun retention.Begun) string {
	return fmt.Sprintf("%s%020d-%s", beganWith, begun.Logged.UnixNano(), strings.TrimPrefix(begun.Plan, digestPrefix))
}

// parseMark tells of which plan a mark is; ok is false for what is none.
func parseMark(key string) (begun retention.Begun, ok bool) {
	at, plan, dashed := strings.Cut(strings.TrimPrefix(key, beganWith), "-")
	nanoseconds, err := strconv.ParseInt(at, 10, 64)
	begun = retention.Begun{Plan: digestPrefix + plan, Logged: time.Unix(0, nanoseconds)}
	return begun, err == nil && dashed && markOf(begun) == key
}

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
