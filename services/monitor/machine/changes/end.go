package changes

import (
	"fmt"
	"strings"
	"time"

	"github.com/reknit/reknit/events"
)

// End is that of a cluster's job.
type End struct {
	events.JobEnd
	At time.Time `json:"at"` // as the negotiator says, which tells of it again later: by the log's clock
}

// EndOf reads the event that tells it; nil where it is none.
func EndOf(event events.Event) *End {
	end, err := events.Open[events.JobEnd](event)
	if err != nil || event.Kind != events.TrainingCompleted {
		return nil
	}
	return &End{end, event.Time}
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
	if len(e.Differ) > 0 {
		says += ", and its nodes ended with different models: they differ in " + units(e.Differ)
	}
	return says
}

// units tells ranges of units, as "units 0, 3-5".
func units(ranges []events.Range) string {
	var told []string
	for _, one := range ranges {
		if one.Count() == 1 {
			told = append(told, fmt.Sprint(one.First))
		} else {
			told = append(told, fmt.Sprintf("%d-%d", one.First, one.End-1))
		}
	}
	if len(ranges) == 1 && ranges[0].Count() == 1 {
		return "unit " + told[0]
	}
	return "units " + strings.Join(told, ", ")
}
