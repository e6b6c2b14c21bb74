package bus

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
)

// A warning at every start on one machine had people stop reading warnings.
func TestOnlyAServerThatOtherMachinesReachIsWarnedOf(t *testing.T) {
	var told bytes.Buffer
	before := slog.Default()
	slog.SetDefault(slog.New(slog.NewTextHandler(&told, nil)))
	t.Cleanup(func() { slog.SetDefault(before) })
	for url, isHere := range map[string]bool{
		"nats://127.0.0.1:4222": true, "nats://localhost:4222": true, "nats://[::1]:4222": true, "nats://127.0.0.1": true,
		"nats://10.0.0.7:4222": false, "nats://127.0.0.1.example:4222": false, "nats://127.0.0.1:4222,nats://10.0.0.7:4222": false, "": false,
	} {
		told.Reset()
		if _, err := openKit(Config{URL: url}, func() {}); err != nil {
			t.Fatal(err)
		}
		if warned := strings.Contains(told.String(), "no keys and no TLS"); warned == isHere {
			t.Errorf("%q: warned %v", url, warned)
		}
	}
}
