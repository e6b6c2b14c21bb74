package local

import (
	"net/http"
	"strings"
	"testing"

	"github.com/reknit/reknit/events"
)

func TestOneAgentServesSeveralTrainersOfAHost(t *testing.T) {
	r := newRig(t)
	first, second := r.join(usualJoin), r.join(strings.Replace(usualJoin, "{", `{"node":"n2",`, 1))
	r.commit(0, first.member, second.member)
	for rank, c := range []*client{first, second} {
		adopt := c.next(orderAdopt, Report{})
		step := c.next(orderStep, Report{Order: adopt.ID})
		if step.Rank != rank || step.World != 2 || len(step.Samples) != 1 || step.Samples[0][0] != 8*rank {
			t.Errorf("%s has rank %d of %d, and samples %v", c.member.Node, step.Rank, step.World, step.Samples)
		}
		c.expect(http.StatusOK, nil, "PUT", "/v1/store/1/of-"+c.member.Node, "here")
	}
	if _, value := r.call(first.http, "GET", first.path("/v1/store/1/of-n2?wait=60"), nil); string(value) != "here" {
		t.Errorf("what the second set is %q to the first", value)
	}
	second.stream.Close()
	if exited := await[events.Exit](r, events.NodeExited); exited.Node != "n2" {
		t.Errorf("it says that %s has ended", exited.Node)
	}
	var standing Standing
	first.expect(http.StatusOK, &standing, "GET", "/v1/state", "")
}
