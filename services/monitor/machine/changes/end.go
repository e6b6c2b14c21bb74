package changes

import (
	"fmt"
	"time"

	"github.com/reknit/reknit/events"
)

// End is that of a cluster's job.
type End struct {
	events.JobEnd
	At time.Time `json:"at"` // by the log's clock
}

// EndOf reads the event that tells it; nil where it is none.
func EndOf(event events.Event) *End {
	end, err := events.Open[events.JobEnd](event)
	if err != nil {
		return nil
	}
	return &End{end, event.Logged}
}

// String tells it as a person would.
func (e *End) String() string {
	nodes := "1 node"
	if len(e.Nodes) != 1 {
		nodes = fmt.Sprintf("%d nodes", len(e.Nodes))
	}
	says := fmt.Sprintf("step %d made by %s", e.Step, nodes)
	if e.Digest != "" {
		says += ", model digest " + e.Digest
	}
	return says
}
