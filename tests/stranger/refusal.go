package stranger

import (
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/nats-io/nats.go"
)

// hearRefusal calls refused, once at most, with why the services refused what a stream acknowledged. It looks whether that was said
// already, and listens for a while. Nobody else who says so is believed.
func hearRefusal(nc *nats.Conn, acknowledgement []byte, refused func(why string)) {
	var ack struct{ Seq uint64 }
	json.Unmarshal(acknowledgement, &ack)
	subject, heard := fmt.Sprint("reknit.event.dev.event.refused.", ack.Seq), make(chan *nats.Msg, 8)
	subscription, err := nc.ChanSubscribe(subject, heard)
	if err != nil {
		return
	}
	defer subscription.Unsubscribe()
	last, err := nc.Request("$JS.API.STREAM.MSG.GET.REKNIT_EVENTS_dev", fmt.Appendf(nil, `{"last_by_subj":%q}`, subject), 5*time.Second)
	if err == nil {
		var found struct{ Message struct{ Data []byte } }
		json.Unmarshal(last.Data, &found)
		heard <- &nats.Msg{Data: found.Message.Data} // nothing, where it is not there
	}
	for ends := time.After(10 * time.Second); ; {
		select {
		case message := <-heard:
			var event struct {
				Source string
				Data   struct{ Reason, Detail string }
			}
			json.Unmarshal(message.Data, &event)
			if slices.Contains([]string{"/monitor", "/negotiator", "/planner", "/restorer"}, event.Source) {
				refused(event.Data.Reason + ": " + event.Data.Detail)
				return
			}
		case <-ends:
			return
		}
	}
}
