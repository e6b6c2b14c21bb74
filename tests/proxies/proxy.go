// Package proxies stands between processes and what they connect to, and cuts them off from it: no byte passes, and no
// connection ends.
package proxies

import (
	"net"
	"sync"
	"time"
)

// Proxy passes the bytes of connections on to a target.
type Proxy struct {
	listener net.Listener
	target   string        // host:port
	delay    time.Duration // of what comes from who connects
	path     sync.RWMutex  // whoever passes bytes on holds it for reading; a black hole holds it for writing
}

// New returns a proxy that listens on a free port of this host. Data that are sent through it come that much later.
func New(target string, delay time.Duration) (*Proxy, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	p := &Proxy{listener: listener, target: target, delay: delay}
	go p.accept()
	return p, nil
}

// Cut makes the proxy a black hole until Mend is called.
func (p *Proxy) Cut() { p.path.Lock() }

// Mend lets bytes pass again, those too that were sent meanwhile.
func (p *Proxy) Mend() { p.path.Unlock() }

// Address returns the host:port that the proxy listens on.
func (p *Proxy) Address() string { return p.listener.Addr().String() }

// Close takes no more connections. Those that are open stay.
func (p *Proxy) Close() { p.listener.Close() }

func (p *Proxy) accept() {
	for {
		near, err := p.listener.Accept()
		if err != nil {
			return // closed
		}
		go p.serve(near)
	}
}

func (p *Proxy) serve(near net.Conn) {
	defer near.Close()
	p.path.RLock()
	far, err := net.Dial("tcp", p.target)
	p.path.RUnlock()
	if err != nil {
		return
	}
	defer far.Close()
	go p.pass(near, far, 0)
	p.pass(far, near, p.delay)
}

// pass passes bytes on until one of the ends closes, and then closes the other.
func (p *Proxy) pass(to, from net.Conn, delay time.Duration) {
	defer to.Close()
	buffer := make([]byte, 32<<10)
	for {
		length, err := from.Read(buffer)
		time.Sleep(delay)
		p.path.RLock()
		_, failed := to.Write(buffer[:length])
		p.path.RUnlock()
		if err != nil || failed != nil {
			return
		}
	}
}
