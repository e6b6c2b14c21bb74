package page

import (
	"fmt"
	"net/http"
	"time"

	"github.com/reknit/reknit/events"
	"github.com/reknit/reknit/shared/bus"
)

// leaveReason is what the log keeps of a leave that somebody asked for on the page.
const leaveReason = "asked for on the page"

// leave asks for a node to leave, as reknit drain does. Each request asks anew: a node that was refused may be asked again.
func leave(b *bus.Bus) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		node := r.PathValue("node")
		last, found, err := b.LastEvent(r.Context(), events.PlanStream, events.PlanSubject(b.Cluster(), "*"))
		if err != nil {
			http.Error(w, "the log is not read: "+err.Error(), http.StatusServiceUnavailable)
			return
		}
		plan, err := events.Open[events.Plan](last)
		if _, is := plan.Member(node); !found || err != nil || !is {
			http.Error(w, fmt.Sprintf("node: expected a member of the plan in force, got %.80q", node), http.StatusNotFound)
			return
		}
		now := time.Now()
		monitor := events.Speaker{Source: "/monitor", Cluster: b.Cluster()}
		_, err = b.Publish(r.Context(), monitor.First(now, now.Format(time.RFC3339Nano), events.LeaveRequested, node,
			&events.Leave{Node: node, Reason: leaveReason}))
		if err != nil {
			http.Error(w, "the leave is not in the log: "+err.Error(), http.StatusServiceUnavailable)
			return
		}
		w.WriteHeader(http.StatusAccepted)
	}
}
