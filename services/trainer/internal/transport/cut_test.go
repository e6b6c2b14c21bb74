package transport

import (
	"bytes"
	"fmt"
	"net"
	"testing"
)

// cutter forwards connections to an address and breaks the first ones after so many bytes.
func cutter(t *testing.T, address string, cuts ...int64) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { listener.Close() })
	go func() {
		for i := 0; ; i++ {
			connection, err := listener.Accept()
			if err != nil {
				return
			}
			limit := int64(1) << 40
			if i < len(cuts) {
				limit = cuts[i]
			}
			go forward(connection, address, limit)
		}
	}()
	return listener.Addr().String()
}

func forward(from net.Conn, address string, limit int64) {
	defer from.Close()
	to, err := net.Dial("tcp", address)
	if err != nil {
		return
	}
	defer to.Close()
	buffer := make([]byte, 1024)
	for limit > 0 {
		n, err := from.Read(buffer[:min(limit, int64(len(buffer)))])
		if err != nil {
			return
		}
		if _, err := to.Write(buffer[:n]); err != nil {
			return
		}
		limit -= int64(n)
	}
}

func TestABrokenConnectionLosesAndRepeatsNothing(t *testing.T) {
	a, b := listen(t, "a"), listen(t, "b")
	through := b.peer()
	through.Address = cutter(t, b.Address(), 100, 1000, 1500)
	a.Switch(1, "1", []Peer{through})
	b.Switch(1, "1", []Peer{a.peer()})
	a.Begin(0)
	b.Begin(0)
	for i := range 100 {
		a.send(t, "b", 1, uint64(i), fmt.Sprint("message ", i))
	}
	for i := range 100 {
		b.expect(t, 1, fmt.Sprint("message ", i))
	}
	a.send(t, "b", 2, 0, "the last")
	b.expect(t, 2, "the last")
	if message, ok := b.Take(1); ok {
		t.Errorf("took %q twice", message.Payload)
	}
	a.expectSuspicion(t, suspicion{"b", true})
}

// swallower forwards connections to an address, but the first one's bytes it swallows: once it has seen a payload among
// them it tells so, and breaks the connection when told to.
func swallower(t *testing.T, address, payload string) (listens string, swallowed <-chan struct{}, cut chan<- struct{}) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { listener.Close() })
	seen, end := make(chan struct{}), make(chan struct{})
	go func() {
		first, err := listener.Accept()
		if err != nil {
			return
		}
		read, buffer := []byte(nil), make([]byte, 1024)
		for !bytes.Contains(read, []byte(payload)) {
			n, err := first.Read(buffer)
			if err != nil {
				return
			}
			read = append(read, buffer[:n]...)
		}
		close(seen)
		<-end
		first.Close()
		for connection, err := listener.Accept(); err == nil; connection, err = listener.Accept() {
			go forward(connection, address, 1<<40)
		}
	}()
	return listener.Addr().String(), seen, end
}

func TestWhatAConnectionLostOfTheStepBeforeIsSentAgain(t *testing.T) {
	a, b := listen(t, "a"), listen(t, "b")
	through := b.peer()
	address, swallowed, cut := swallower(t, b.Address(), "the end of step 0")
	through.Address = address
	a.Switch(1, "1", []Peer{through})
	b.Switch(1, "1", []Peer{a.peer()})
	a.Begin(0)
	b.Begin(0)
	a.send(t, "b", 1, 0, "the end of step 0")
	<-swallowed
	a.Begin(1)
	close(cut)
	b.expect(t, 1, "the end of step 0")
}
