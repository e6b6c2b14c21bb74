package bus

import (
	"strings"
	"sync"
	"time"

	"github.com/reknit/reknit/events"
)

// unreadableAfter is how long a payload may be unreadable over one connection before its event is refused: what is behind the event
// waits. A store that does not answer may do so again, and what a service says is worth a minute of everybody.
var unreadableAfter = time.Minute

// missingAfter is how long a store that answers may have nothing of a name that a node says. The speaker stores the payload first, and
// hears that a majority has it: a replica that is in touch with the others reads it within milliseconds.
var missingAfter = 2 * time.Second

// mostMissing is for how much of each minute one connection waits so: a node may say as many names as it likes. After it what is
// missing at the first look is refused.
const mostMissing = 3 * time.Second

// allowance is what is left of mostMissing.
type allowance struct {
	mutex sync.Mutex
	began time.Time // the minute
	spent time.Duration
}

// take returns how much of a wait is allowed now, and counts it as spent.
func (a *allowance) take(now time.Time, wait time.Duration) time.Duration {
	a.mutex.Lock()
	defer a.mutex.Unlock()
	if now.Sub(a.began) >= time.Minute {
		a.began, a.spent = now, 0
	}
	allowed := max(0, min(wait, mostMissing-a.spent))
	a.spent += allowed
	return allowed
}

// giveBack counts as not spent what was not waited.
func (a *allowance) giveBack(rest time.Duration) {
	a.mutex.Lock()
	defer a.mutex.Unlock()
	a.spent = max(0, a.spent-max(0, rest))
}

// waiting is how long one payload is waited for.
type waiting struct {
	bus        *Bus
	patience   time.Duration // for one that the store does not have
	allowance  *allowance    // of which the patience is taken; nil: a service says the name
	began      time.Time     // over this connection
	connection *connection
	longest    time.Duration // as last looked at
	taken      bool
}

func (b *Bus) waitFor(event events.Event, as reading) *waiting {
	w := &waiting{bus: b, patience: as.patience, began: time.Now(), connection: b.connection.Load()}
	if strings.HasPrefix(event.Source, events.NodeSource("")) {
		w.allowance, w.patience = &b.missing, min(as.patience, missingAfter)
	}
	return w
}

// over reports whether the wait is over: for a payload that is missing sooner than for a store that does not answer.
func (w *waiting) over(missing bool) bool {
	if now := w.bus.connection.Load(); now != w.connection || !w.bus.conn.IsConnected() {
		w.began, w.connection = time.Now(), now
	}
	w.longest = unreadableAfter
	if missing {
		if w.allowance != nil && !w.taken {
			w.patience, w.taken = w.allowance.take(time.Now(), w.patience), true
		}
		w.longest = w.patience
	}
	return time.Since(w.began) >= w.longest
}

func (w *waiting) end() {
	if w.taken {
		w.allowance.giveBack(w.patience - time.Since(w.began))
	}
}
