package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"time"

	"github.com/reknit/reknit/tests/links"
)

// checkedLink is what the emulation itself is judged by, before anything else.
var checkedLink = links.Shape{MegabitsPerSecond: 500, Delay: 15 * time.Millisecond}

// A plain TCP stream fills so much of a link; outside of it the machine is too busy or the emulation wrong.
const leastOfTCP, mostOfTCP = 0.85, links.Payload

// checkLink measures a link by a round trip and by a plain TCP stream.
func checkLink(ctx context.Context) ([]row, error) {
	roundTrip, fill, err := plainTCP(ctx)
	if err != nil {
		return nil, fmt.Errorf("check of a link: %w", err)
	}
	least := 2 * checkedLink.Delay.Seconds()
	fmt.Printf("a link of %.0f Mbit/s and %s: round trip %.1f ms, a plain TCP stream has %.1f %% of the rate (%s)\n",
		checkedLink.MegabitsPerSecond, checkedLink.Delay, roundTrip*1e3, fill*100, load())
	return []row{
		{Figure: "a link's round trip", Unit: "s", Ours: roundTrip, Target: least,
			Holds: roundTrip >= least && roundTrip < 1.2*least},
		{Figure: "a plain TCP stream's share of a link", Unit: "of 1", Ours: fill, Target: leastOfTCP,
			Holds: fill >= leastOfTCP && fill <= mostOfTCP},
	}, nil
}

// streamBytes takes three seconds.
const streamBytes = 180 << 20

// plainTCP sends a byte there and back, then a stream, over a link of its own.
func plainTCP(ctx context.Context) (roundTripSeconds, fill float64, err error) {
	var ends [2]links.End
	for i := range ends {
		namespace, err := links.NewNamespace()
		if err != nil {
			return 0, 0, err
		}
		defer namespace.Close()
		ends[i] = links.End{Namespace: namespace, Address: netip.MustParsePrefix(address(0, 0, i+1) + "/30")}
	}
	link, err := links.Join(checkedLink, ends[0], ends[1])
	if err != nil {
		return 0, 0, err
	}
	defer link.Close()
	connection, err := serveStream(ends)
	if err != nil {
		return 0, 0, err
	}
	defer connection.Close()
	defer context.AfterFunc(ctx, func() { connection.Close() })()
	began, first := time.Now(), make([]byte, 1)
	if _, err = connection.Write(first); err == nil {
		_, err = io.ReadFull(connection, first)
	}
	roundTripSeconds = time.Since(began).Seconds()
	began = time.Now()
	received, copied := io.Copy(io.Discard, connection)
	fill = float64(received) * 8 / 1e6 / time.Since(began).Seconds() / checkedLink.MegabitsPerSecond
	return roundTripSeconds, fill, errors.Join(err, copied)
}

// serveStream connects the ends. The far one answers a byte, and streams behind it.
func serveStream(ends [2]links.End) (connection net.Conn, err error) {
	var listener net.Listener
	at := net.JoinHostPort(ends[1].Address.Addr().String(), "7000")
	if err := ends[1].Namespace.Do(func() (err error) { listener, err = net.Listen("tcp", at); return err }); err != nil {
		return nil, err
	}
	go func() {
		defer listener.Close()
		far, err := listener.Accept()
		if err != nil {
			return
		}
		defer far.Close()
		_, err = io.CopyN(far, far, 1)
		if err == nil {
			_, err = io.CopyN(far, zeros{}, streamBytes)
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, "check of a link:", err) // shows as a short stream
		}
	}()
	err = ends[0].Namespace.Do(func() (err error) { connection, err = net.Dial("tcp", at); return err })
	return connection, err
}

// zeros never end.
type zeros struct{}

func (zeros) Read(into []byte) (int, error) { return len(into), nil }
