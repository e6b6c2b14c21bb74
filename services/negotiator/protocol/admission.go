package protocol

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Admission says who may join. The zero value lets everybody.
type Admission struct {
	Version int               // of the policy, which goes up; zero: there is none
	Nodes   map[string]string // the institution of each node that is listed; none: everybody is
	Quorum  int               // of how many institutions listed members must approve of any other node; 0: none may join
	Lists   string            // how one has a node listed, for people; empty: nobody knows
}

// Refuses returns why nobody needs to be asked about a node; empty where it is listed, or others may approve of it.
func (a Admission) Refuses(node string) string {
	if len(a.Nodes) == 0 || a.Nodes[node] != "" || a.Quorum > 0 {
		return ""
	}
	return "no institution lists it in the admission policy" + a.todo()
}

// todo is what is said of a node that is not listed, behind the reason.
func (a Admission) todo() string {
	if a.Lists == "" {
		return ""
	}
	return ". " + a.Lists
}

// Lacks returns why a node may not join with the consent of these members; empty where it may.
func (a Admission) Lacks(node string, consenting []string) string {
	if len(a.Nodes) == 0 || a.Nodes[node] != "" {
		return ""
	}
	approving := map[string]bool{}
	for _, member := range consenting {
		if institution := a.Nodes[member]; institution != "" {
			approving[institution] = true
		}
	}
	if len(approving) >= a.Quorum {
		return ""
	}
	return fmt.Sprintf("no institution lists it in the admission policy, and of %d that must approve there are %d: %s%s", a.Quorum,
		len(approving), strings.Join(append(slices.Sorted(maps.Keys(approving)), "no others"), ", "), a.todo())
}
