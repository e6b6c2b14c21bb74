package stranger

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
)

// hello takes part in cluster "dev" as node "me": it asks for a place, agrees to the first plan, shows that it lives
// and hands every plan to train, until stop is closed. It hears whether the services refuse what it says.
func hello(nc *nats.Conn, job any, train func(plan []byte), refused func(why string), stop <-chan struct{}) {
	incarnation := fmt.Sprint(time.Now().UnixNano())    // another one at each start
	say := func(kind, id string, data map[string]any) { // a CloudEvent, on the subject of its kind
		event, _ := json.Marshal(map[string]any{"specversion": "1.0", "id": fmt.Sprint(time.Now().UnixNano()), "source": "/node/me",
			"type": "io.reknit." + kind + ".v1", "subject": id, "cluster": "dev", "data": data})
		if ack, err := nc.Request("reknit.event.dev."+kind+"."+id, event, 5*time.Second); err == nil {
			go hearRefusal(nc, ack.Data, func(why string) { refused(kind + ": " + why) })
		}
	}
	nc.Subscribe("reknit.plan.dev.*", func(m *nats.Msg) { train(m.Data) })
	nc.Subscribe("reknit.event.dev.negotiation.opened.*", func(m *nats.Msg) {
		var opened struct{ Data struct{ Negotiation string } }
		json.Unmarshal(m.Data, &opened)
		everything := []any{map[string]any{"units": map[string]int{"first": 0, "end": 2}, "steps": []int{0}}}
		say("negotiation.consented", "me", map[string]any{"negotiation": opened.Data.Negotiation,
			"node": "me", "incarnation": incarnation, "accepted": true, "step": 0, "holdings": everything})
	})
	say("membership.join-requested", "me", map[string]any{"node": "me", "incarnation": incarnation, "address": "10.0.0.1:7400",
		"memoryBytes": 1 << 30, "job": job})
	for beat := 1; ; beat++ {
		pulse, _ := json.Marshal(map[string]any{"node": "me", "incarnation": incarnation, "number": beat, "generation": 0, "step": 0,
			"stepSeconds": 0, "loss": 0})
		nc.Publish("reknit.pulse.dev.me", pulse)
		select {
		case <-stop:
			return
		case <-time.After(250 * time.Millisecond):
		}
	}
}
