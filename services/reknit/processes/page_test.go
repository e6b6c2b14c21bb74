package processes

import (
	"errors"
	"net"
	"strings"
	"testing"

	"github.com/reknit/reknit/services/reknit/tell"
)

// The monitor was started anyway, found its port taken, and was started again for ever.
func TestAPageWhoseAddressIsTakenOrNoneIsRefusedBeforeAnythingStarts(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	if _, err := PageAddress(taken.Addr().String()); err == nil || !strings.Contains(err.Error(), "--page: "+taken.Addr().String()+" is taken") {
		t.Errorf("a page where somebody listens: %v", err)
	}
	for _, given := range []string{"", "4280", "everywhere"} {
		if _, err := PageAddress(given); !errors.As(err, &tell.UsageError{}) || !strings.Contains(err.Error(), "--page: expected host:port") {
			t.Errorf("--page %q: %v", given, err)
		}
	}
}

func TestAPageHasTheAddressThatIsSaidOrAFreeOneOrNone(t *testing.T) {
	for given, expected := range map[string]string{"none": "", "auto": "127.0.0.1:", "127.0.0.1:0": "127.0.0.1:"} {
		if address, err := PageAddress(given); err != nil || !strings.HasPrefix(address, expected) || (address == "") != (expected == "") {
			t.Errorf("--page %s: %q, %v", given, address, err)
		}
	}
}
