package embedded

import (
	"fmt"
	"strings"
)

// warner is a server's log of which only what is wrong with the server itself is heard.
type warner struct{ warns func(string) }

func (w warner) hear(format string, values []any) {
	if said := fmt.Sprintf(format, values...); !strings.Contains(said, "cid:") { // about a connection
		w.warns(strings.TrimSpace(said))
	}
}

func (w warner) Noticef(string, ...any) {}

func (w warner) Warnf(format string, values ...any) { w.hear(format, values) }

func (w warner) Fatalf(format string, values ...any) { w.hear(format, values) }

func (w warner) Errorf(format string, values ...any) { w.hear(format, values) }

func (w warner) Debugf(string, ...any) {}

func (w warner) Tracef(string, ...any) {}
