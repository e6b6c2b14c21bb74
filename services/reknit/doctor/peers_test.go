package doctor

import (
	"fmt"
	"net"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/reknit/reknit/events"
)

// Each was waited for by itself: 48 s where as many were frozen.
func TestMembersAreAskedForASignOfLifeAtOnceAndOnce(t *testing.T) {
	c := newClinic(t, func(jetstream.JetStream) {})
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { listener.Close() })
	plan := &events.Plan{Cluster: "c", Generation: 1, Policy: "repipeline", Data: events.Data{GlobalBatch: mostPeers + 1, MicroBatch: 1}}
	var asked []*nats.Msg // of whom nobody is answered before all are asked
	for n := range mostPeers + 1 {
		node := fmt.Sprint("n", n)
		plan.Nodes = append(plan.Nodes, events.Member{Node: node, Incarnation: "i", Address: listener.Addr().String()})
		plan.Pipelines = append(plan.Pipelines,
			events.Pipeline{MicroBatches: 1, Stages: []events.Stage{{Node: node, Layers: events.Range{End: 1}}}})
	}
	if _, err := c.bus.Conn().Subscribe(events.ProbeSubject("c", "*"), func(ask *nats.Msg) {
		if node := ask.Subject[strings.LastIndex(ask.Subject, ".")+1:]; string(ask.Data) != "{}" {
			ask.Respond(dialAs(ask, node))
		} else if asked = append(asked, ask); len(asked) == mostPeers {
			for _, ask := range asked {
				ask.Respond([]byte("{}"))
			}
		}
	}); err != nil {
		t.Fatal(err)
	}
	c.say("/negotiator", events.PlanCommitted, "1", plan)
	says := map[string]string{}
	findings, _ := allIn(t, c.url, "c")
	for _, finding := range findings {
		says[finding.Check] += finding.Says
	}
	if peers := "looked at 16 of 17 other members of the plan: 16 reached from here, 16 answered at NATS"; says["peers"] != peers {
		t.Errorf("says %q, expected %q", says["peers"], peers)
	}
	if address := "others reach this node at "; !strings.HasPrefix(says["own address"], address) {
		t.Errorf("says %q, expected %q", says["own address"], address)
	}
}
