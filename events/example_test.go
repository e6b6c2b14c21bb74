package events_test

import (
	"errors"
	"fmt"
	"time"

	"github.com/reknit/reknit/events"
)

// A node that asks to leave says so by an event of its own. The same reason makes the same event, so that a request which is published
// again counts once.
func ExampleSpeaker_First() {
	n1 := events.Speaker{Source: events.NodeSource("n1"), Cluster: "opticks"}
	at := time.Date(2026, 12, 1, 12, 0, 0, 0, time.UTC)
	wish := &events.Leave{Node: "n1", Reason: "maintenance", DeadlineSeconds: 120}
	first := n1.First(at, "maintenance of December", events.LeaveRequested, "n1", wish)
	again := n1.First(at.Add(time.Minute), "maintenance of December", events.LeaveRequested, "n1", wish)

	fmt.Println(first.SubjectOn(false))
	fmt.Println(string(first.Data))
	fmt.Println("one id:", first.ID == again.ID)
	// Output:
	// reknit.event.opticks.membership.leave-requested.n1
	// {"node":"n1","reason":"maintenance","deadlineSeconds":120}
	// one id: true
}

// A payload that is not as its fields say is refused, with the field and what was expected of it.
func ExampleOpen() {
	n1 := events.Speaker{Source: events.NodeSource("n1"), Cluster: "opticks"}
	wish := n1.First(time.Now(), "ten seconds ago", events.LeaveRequested, "n1", &events.Leave{Node: "n1", DeadlineSeconds: -10})
	_, err := events.Open[events.Leave](wish)
	var wrong *events.FieldError
	fmt.Println(errors.As(err, &wrong), wrong.Field, wrong.Got)
	// Output:
	// true deadlineSeconds -10
}
