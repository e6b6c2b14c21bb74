package shards

import (
	"math"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"
)

// Warming: TCP begins with 15 kB in a round trip and doubles that, so that the first chunk of 512 KiB took 0.3 s over
// links of 250 to 581 Mbit/s (measured). A transfer that has nothing to fetch yet has each source send so many zeros
// once: what its link carries in 50 ms, as far as that is known. 25 ms were too few, and 100 to 300 ms no better
// (tests/bench/links).
const (
	warmMessages = 8 // of chunkBytes, at most
	warmSeconds  = 0.05
	warmTimeout  = 500 * time.Millisecond
)

func warmSubject(bucket string) string { return "shards.warm." + bucket }

// warmCount is how many messages of zeros widen the window of a link of so many bytes/s; zero is not known.
func warmCount(bytesPerSecond float64) int {
	if bytesPerSecond == 0 {
		return warmMessages
	}
	return min(int(math.Ceil(bytesPerSecond*warmSeconds/chunkBytes)), warmMessages)
}

// serveWarming answers those who warm their connections with as many messages as they ask for, or warmMessages, and an empty
// one behind them.
func serveWarming(conn *nats.Conn, bucket string) error {
	zeros := make([]byte, chunkBytes)
	_, err := conn.Subscribe(warmSubject(bucket), func(request *nats.Msg) {
		wanted, err := strconv.Atoi(string(request.Data))
		if err != nil {
			wanted = warmMessages
		}
		for range min(wanted, warmMessages) {
			if request.Respond(zeros) != nil {
				return
			}
		}
		_ = request.Respond(nil) // who hears it waits no longer
	})
	return err
}

// warm returns when a connection's window has grown, or is not to any more. A server of another kind, such as the
// hub's, says that nobody answers.
func warm(conn *nats.Conn, bucket string, messages int, wanted func() bool) {
	if !wanted() {
		return
	}
	answers, err := conn.SubscribeSync(conn.NewInbox())
	if err != nil {
		return
	}
	defer answers.Unsubscribe()
	if conn.PublishRequest(warmSubject(bucket), answers.Subject, []byte(strconv.Itoa(messages))) != nil {
		return
	}
	for deadline, left := time.Now().Add(warmTimeout), messages; left > 0 && wanted(); left-- {
		message, err := answers.NextMsg(time.Until(deadline))
		if err != nil || len(message.Data) == 0 {
			return
		}
	}
}
