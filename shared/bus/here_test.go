package bus

import "testing"

// A warning at every start on one machine had people stop reading warnings.
func TestOnlyAServerThatOtherMachinesReachIsWarnedOf(t *testing.T) {
	for url, isHere := range map[string]bool{
		"nats://127.0.0.1:4222": true, "nats://localhost:4222": true, "nats://[::1]:4222": true, "nats://127.0.0.1": true,
		"nats://10.0.0.7:4222": false, "nats://127.0.0.1.example:4222": false, "nats://127.0.0.1:4222,nats://10.0.0.7:4222": false, "": false,
	} {
		if onlyHere.MatchString(url) != isHere {
			t.Errorf("%q: expected %v", url, isHere)
		}
	}
}
