package world

import (
	"fmt"

	"github.com/reknit/reknit/events"
)

// release has a user say what becomes of the step that is held, as the log told last.
func (w *World) release(skip bool) {
	if w.held == nil {
		return
	}
	w.requests++
	w.publish(events.Speaker{Source: "/user", Cluster: cluster}.First(w.time(), fmt.Sprint("release-", w.requests), events.ReleaseRequested,
		cluster, &events.ReleaseRequest{Hold: w.held.Hold, Step: w.held.Step, Skip: skip, Reason: "asked by an operator"}))
}

func toldRelease(step uint64, skip bool) string {
	if skip {
		return fmt.Sprintf("skip step %d", step)
	}
	return fmt.Sprintf("retry step %d", step)
}

// ask has a user ask for something of the whole cluster.
func (w *World) ask(kind events.Kind, asked events.Payload) {
	w.requests++
	w.publish(events.Speaker{Source: "/user", Cluster: cluster}.First(w.time(), fmt.Sprint("stop-", w.requests), kind, cluster, asked))
}
