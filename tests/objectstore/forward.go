package main

import (
	"context"
	"io"
	"net"
)

// plane is where a data plane listens, and another address that leads there and nowhere else.
type plane struct{ listen, advertise string }

// forward takes connections at an address until ctx ends.
func forward(ctx context.Context) (p plane, err error) {
	outside, err := net.Listen("tcp", "127.0.0.2:0")
	if err != nil {
		return p, err
	}
	context.AfterFunc(ctx, func() { outside.Close() })
	_, port, err := net.SplitHostPort(outside.Addr().String())
	p = plane{net.JoinHostPort("127.0.0.1", port), outside.Addr().String()}
	go func() {
		for {
			conn, err := outside.Accept()
			if err != nil {
				return
			}
			go join(conn, p.listen)
		}
	}()
	return p, err
}

// join carries both ways until one side ends.
func join(near net.Conn, to string) {
	defer near.Close()
	far, err := net.Dial("tcp", to)
	if err != nil {
		return
	}
	defer far.Close()
	go func() {
		_, _ = io.Copy(far, near) // its end ends the other way, too
		far.Close()
	}()
	_, _ = io.Copy(near, far)
}
