package shards

import (
	"fmt"
	"log/slog"
	"strings"
)

// refusals is the log of a store's server: who was not let in, and why.
type refusals struct{ bucket string }

func (r refusals) Errorf(format string, args ...any) {
	slog.Warn("shard store: "+fmt.Sprintf(format, args...), "bucket", r.bucket)
}

// Debugf hears who speaks no TLS, which the server takes for somebody who tries the port, and much else.
func (r refusals) Debugf(format string, args ...any) {
	if strings.Contains(format, "TLS handshake error") {
		r.Errorf(format, args...)
	}
}

func (r refusals) Fatalf(format string, args ...any) { r.Errorf(format, args...) }
func (r refusals) Warnf(string, ...any)              {}
func (r refusals) Noticef(string, ...any)            {}
func (r refusals) Tracef(string, ...any)             {}
