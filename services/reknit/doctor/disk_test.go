package doctor

import (
	"os"
	"strings"
	"testing"
)

func TestTheRoomUnderNATSStoreIsToldWhereThatIsHere(t *testing.T) {
	says := func(store string) (says string) {
		for _, finding := range (&doctor{store: store}).disk(t.Context()) {
			if strings.Contains(finding.Says, "NATS' store") || strings.Contains(finding.Do, "--store") {
				says = finding.State + ": " + finding.Says
			}
		}
		return says
	}
	t.Chdir(t.TempDir())
	if said := says(""); said != "" {
		t.Errorf("of a store that is nowhere it says %q", said)
	}
	if said := says("elsewhere"); !strings.HasPrefix(said, wrong+": elsewhere: ") {
		t.Errorf("of a store that is named and not there it says %q", said)
	}
	if err := os.Mkdir("reknit-data", 0o700); err != nil {
		t.Fatal(err)
	}
	if said := says(""); !strings.Contains(said, "reknit-data, of NATS' store, has ") || !strings.HasSuffix(said, " left") {
		t.Errorf("of the store of reknit up it says %q", said)
	}
}

func TestADiskIsNearlyFullByItsShareOrByItsBytes(t *testing.T) {
	const gib = 1 << 30
	for _, disk := range []struct {
		free, whole int64
		scarce      bool
	}{
		{free: gib, whole: 20 * gib},
		{free: gib - 1, whole: 4 * gib, scarce: true},     // a quarter of a small one
		{free: 49 * gib, whole: 1000 * gib, scarce: true}, // much of a large one
		{free: 50 * gib, whole: 1000 * gib},
		{free: 0, whole: 0, scarce: true},
	} {
		if says := scarce(disk.free, disk.whole); says != disk.scarce {
			t.Errorf("of %d bytes %d are left: scarce %v, expected %v", disk.whole, disk.free, says, disk.scarce)
		}
	}
}
