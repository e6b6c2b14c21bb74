package restorer

import (
	"strings"
	"testing"

	"github.com/reknit/reknit/services/restorer/machine"
)

func TestAShardSizeThatIsNoneIsRefusedByName(t *testing.T) {
	for _, name := range []string{"", "Chain", "8MiB"} {
		if _, err := (Config{ShardSize: name}).settings(); err == nil || !strings.Contains(err.Error(), "REKNIT_SHARD_SIZE: expected chain or parts, got") {
			t.Errorf("%q: %v", name, err)
		}
	}
	if settings, err := (Config{ShardSize: "chain"}).settings(); err != nil || settings.ShardSize != machine.Chain {
		t.Errorf("%+v, %v", settings, err)
	}
}
