package bus

import (
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
