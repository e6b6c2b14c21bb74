package stream

import (
	"testing"
	"time"

	"github.com/reknit/reknit/events"
)

// The real server is held to the same in shared/bus.
func TestAStoreThatDropsTheOldestRefusesNothing(t *testing.T) {
	objects := NewServer(events.EventStream, events.PlanStream, Limits{}, false).Events.Payloads
	objects.Keep(events.ObjectStore{MaxBytes: 250, DropsOldest: true})
	now := time.Unix(0, 0)
	for i, name := range []string{"a", "b", "a", "c", "d"} { // a is put again, and is newer than b then
		if err := objects.Put(now.Add(time.Duration(i)*time.Second), name, 100, name, Answered); err != nil {
			t.Fatal(err)
		}
	}
	for name, there := range map[string]bool{"a": false, "b": false, "c": true, "d": true} {
		if _, err := objects.Get(name, Answered); (err == nil) != there {
			t.Errorf("%s is there: %v", name, err == nil)
		}
	}
	if held, _ := objects.Size(); held != 200 {
		t.Errorf("%d bytes are held", held)
	}
}
