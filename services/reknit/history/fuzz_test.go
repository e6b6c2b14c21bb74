package history

import (
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/reknit/reknit/events"
	"github.com/reknit/reknit/services/monitor/machine/changes"
)

// FuzzLog tells of a change to which any valid event was added: whatever it says, there is something to tell.
func FuzzLog(f *testing.F) {
	kinds := changes.Kinds()
	for i, kind := range kinds {
		files, err := filepath.Glob("../../../events/examples/" + string(kind) + ".v1*.json")
		if err != nil || len(files) == 0 {
			f.Fatal(kind, files, err)
		}
		for _, file := range files {
			text, err := os.ReadFile(file)
			var event struct{ Data json.RawMessage }
			if err == nil {
				err = json.Unmarshal(text, &event)
			}
			if err != nil {
				f.Fatal(err)
			}
			f.Add(uint(i), []byte(event.Data))
		}
	}
	f.Fuzz(func(t *testing.T, which uint, data []byte) {
		event := events.Event{ID: "e", Kind: kinds[which%uint(len(kinds))], Source: "/node/n1", Subject: "n1", Cluster: "c", Data: data,
			Logged: time.Unix(1_800_000_000, 0)}
		if _, err := event.Read(); err != nil {
			return
		}
		log := newTeller()
		for _, lost := range []uint64{2, 3} {
			log.failure(lost)
		}
		for until := range log.said { // a change that is under way tells more than one that is over
			record := changes.NewRecord(0)
			for _, said := range log.said[:until+1] {
				record.Take(said)
			}
			record.Take(event)
			all := record.Changes(log.now)
			list(io.Discard, all, nil)
			for _, change := range all {
				detail(io.Discard, change)
			}
			Explanation{Pending: all}.tell(io.Discard)
		}
	})
}
