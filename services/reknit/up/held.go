package up

import (
	"encoding/json"
	"fmt"

	"github.com/nats-io/nats.go"

	"github.com/reknit/reknit/events"
)

// tellHolds has it said why the cluster holds, and that training begins anew.
func tellHolds(url, cluster string, say func(string)) (end func(), err error) {
	conn, err := nats.Connect(url, nats.MaxReconnects(-1))
	if err != nil {
		return nil, err
	}
	for kind, tell := range map[events.Kind]func(data []byte){
		events.ClusterHeld: func(data []byte) {
			var hold events.Hold
			if events.Decode(data, &hold) == nil {
				say("the cluster holds: " + hold.Reason)
			}
		},
		events.TrainingReset: func([]byte) { say("training begins anew once nodes join") },
	} {
		_, err := conn.Subscribe(events.EventSubject(cluster, kind, cluster), func(message *nats.Msg) {
			var event struct{ Data json.RawMessage }
			if json.Unmarshal(message.Data, &event) == nil {
				tell(event.Data)
			}
		})
		if err != nil {
			conn.Close()
			return nil, fmt.Errorf("%s: %w", kind, err)
		}
	}
	return conn.Close, conn.Flush()
}
