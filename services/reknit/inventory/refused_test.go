package inventory

import (
	"testing"
	"time"

	"github.com/reknit/reknit/services/monitor/machine/changes"
)

func TestARefusalOfLongAgoIsToldNoMore(t *testing.T) {
	for ago, told := range map[time.Duration]bool{time.Minute: true, 2 * time.Hour: false} {
		var o Overview
		o.takeChanges(nil, &changes.Refusal{At: time.Now().Add(-ago)})
		if (o.Refused != nil) != told {
			t.Errorf("a refusal of %v ago: %+v", ago, o.Refused)
		}
	}
}
