package doctor

import (
	"strings"
	"testing"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/reknit/reknit/events"
)

// It told users whose disk was full that they had forgotten a setting.
func TestSnapshotsThatNobodyCanWriteAreFoundBeforeOneWasEverWritten(t *testing.T) {
	c := newClinic(t, func(jetstream.JetStream) {})
	c.sound()
	c.commit(7)
	c.say("/node/n1", events.SnapshotFailed, "n1", &events.SnapshotFailure{Node: "n1", Tier: "disk", Step: 20, Plan: events.Digest(nil),
		Units: []events.Range{{End: 1}}, Finding: "full", Reason: "no room: no space left on device", Tiers: []string{"disk"}})
	findings, err := examined(t, c.url)
	if err != nil || len(findings) != 1 || !strings.HasPrefix(findings[0], "snapshots warning: n1 cannot write snapshots to disk since ") ||
		!strings.Contains(findings[0], "no space left on device") {
		t.Errorf("%v, %q", err, findings)
	}
}
