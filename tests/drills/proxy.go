package main

import (
	"net"
	"sync"
	"time"
)

// proxy stands between a trainer and NATS. It can be made a black hole: no byte passes, and no connection ends.
type proxy struct {
	listener net.Listener
	target   string        // host:port
	delay    time.Duration // of what the trainer sends
	path     sync.RWMutex  // whoever passes bytes on holds it for reading; a black hole holds it for writing
}

func newProxy(target string, delay time.Duration) (*proxy, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	p := &proxy{listener: listener, target: target, delay: delay}
	go p.accept()
	return p, nil
}

func (p *proxy) accept() {
	for {
		near, err := p.listener.Accept()
		if err != nil {
			return // closed
		}
		go p.serve(near)
	}
}

func (p *proxy) serve(near net.Conn) {
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
func (p *proxy) pass(to, from net.Conn, delay time.Duration) {
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

func (p *proxy) url() string { return "nats://" + p.listener.Addr().String() }

func (p *proxy) close() { p.listener.Close() }
