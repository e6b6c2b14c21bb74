package changes

import (
	"fmt"
	"testing"
	"time"

	"github.com/reknit/reknit/events"
)

// NATS' store was moved away while all trained, and history told of joins and failures.
func TestWhatNodesClaimAfterTheLogWasLostIsNoJoinAndNoFailure(t *testing.T) {
	record, said := NewRecord(1), 0
	open := func(negotiation string, recalls []string, changes ...events.Change) {
		said++
		at := time.Unix(int64(said), 0)
		event := events.Speaker{Source: "/negotiator", Cluster: "c"}.First(at, fmt.Sprint(said), events.NegotiationOpened, negotiation,
			&events.Opening{Negotiation: negotiation, Generation: 2, Changes: changes, Recalls: recalls})
		event.Logged = at
		record.Take(event)
	}
	says := func(expected string) {
		t.Helper()
		if told := record.Changes(time.Unix(99, 0)); len(told) != 1 || told[0].What() != expected {
			t.Errorf("it says %q: expected %q", told[0].What(), expected)
		}
	}
	joins := []events.Change{
		{Kind: events.ChangeJoin, Node: "s2"}, {Kind: events.ChangeJoin, Node: "s1"}, {Kind: events.ChangeJoin, Node: "s4"},
	}
	open("a", []string{"s1"}, joins...)
	open("b", nil, append(joins,
		events.Change{Kind: events.ChangeFailure, Node: "s1"}, events.Change{Kind: events.ChangeFailure, Node: "s2"},
		events.Change{Kind: events.ChangeFailure, Node: "s3"})...)
	says("claim of s2 and 1 more, join of s4, failure of s3, for the log was lost or replaced")
}
