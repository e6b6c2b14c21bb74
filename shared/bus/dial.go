package bus

import (
	"errors"
	"net"
	"sync/atomic"
	"time"
)

// dialer leaves a server that takes longer than dialTimeout to let it in: one that hangs accepts connections and says nothing, and the next
// may be well. Each second attempt has handshakeTimeout, until one succeeds: the servers may have more to do than they can, as when
// thousands of nodes come at once. A client that left then would come again, and the work of the servers would be in vain.
type dialer struct {
	attempts atomic.Int64
	failed   atomic.Pointer[error] // of the last attempt; the library does not tell that it reached nobody
}

func (d *dialer) Dial(network, address string) (net.Conn, error) {
	conn, err := net.DialTimeout(network, address, dialTimeout)
	d.failed.Store(&err)
	if err != nil || d.attempts.Add(1)%2 == 0 {
		return conn, err
	}
	return impatient{conn}, nil
}

// errUnanswered is told where nothing was found to be wrong yet.
var errUnanswered = errors.New("no answer yet")

// unheard says that nobody is let in, and what is expected: a server that asks for keys says nothing to who shows none.
func (d *dialer) unheard(kit string) string {
	if kit == "" && d.attempts.Load() > 0 {
		return "a NATS server is there, and does not let this process in without a kit; trying on. Where the installation is secured " +
			"(reknit provision security, reknit up --secured), REKNIT_NATS_KIT names the folder of the kit that it made for this process"
	}
	return "no NATS server answers yet; trying until one does (reknit up starts one, REKNIT_NATS_URL names another)"
}

func (d *dialer) failure() error {
	if failed := d.failed.Load(); failed != nil {
		return *failed
	}
	return nil
}

// impatient shortens the deadline for being let in, the only one that the library sets.
type impatient struct{ net.Conn }

func (c impatient) SetDeadline(t time.Time) error {
	if !t.IsZero() {
		t = time.Now().Add(dialTimeout)
	}
	return c.Conn.SetDeadline(t)
}
