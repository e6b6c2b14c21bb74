package main

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"hash"
	"io"
	"net"
	"strconv"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/reknit/reknit/tests/links"
)

// plainPort is where a neighbour sends as many bytes as it is asked for over plain TCP.
const plainPort = 4224

// plainBytes is how much is sent, received and hashed at a time.
const plainBytes = 512 << 10

// pour is bytes that a neighbour sends over plain TCP, of no part of the state.
type pour struct {
	Address        string
	Bytes          int64
	BytesPerSecond float64
}

// pours divide a state as its bound does: all links end at one time.
func (s scenario) pours(sources []source, bytes int64) (pours []pour) {
	level, left := boundSeconds(float64(bytes), s.Neighbours), bytes
	for i, shape := range s.Neighbours {
		share := int64(max(0, level-(2*shape.Delay-links.Burst).Seconds()) * shape.BytesPerSecond())
		if share = min(share, left); i == len(s.Neighbours)-1 {
			share = left
		}
		left -= share
		pours = append(pours, pour{sources[i].Address, share, shape.BytesPerSecond()})
	}
	return pours
}

// servePlain sends to whoever connects as many bytes as it says, each time that it does, until the context ends.
func servePlain(ctx context.Context) error {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", ":"+strconv.Itoa(plainPort))
	if err != nil {
		return err
	}
	context.AfterFunc(ctx, func() { listener.Close() })
	go func() {
		for {
			connection, err := listener.Accept()
			if err != nil {
				return
			}
			go send(connection)
		}
	}()
	return nil
}

func send(to net.Conn) {
	defer to.Close()
	wanted, data := make([]byte, 8), make([]byte, plainBytes)
	for {
		if _, err := io.ReadFull(to, wanted); err != nil {
			return
		}
		for left := int64(binary.BigEndian.Uint64(wanted)); left > 0; left -= plainBytes {
			if _, err := to.Write(data[:min(left, plainBytes)]); err != nil {
				return
			}
		}
	}
}

// takePlain connects, warms the connections as a transfer does, and returns how long it takes until all has come, hashed or not.
func (n *node) takePlain(pours []pour, hashed bool) (seconds float64, err error) {
	connections := make([]net.Conn, len(pours))
	for i, from := range pours {
		if connections[i], err = net.Dial("tcp", net.JoinHostPort(from.Address, strconv.Itoa(plainPort))); err != nil {
			return 0, err
		}
		defer connections[i].Close()
		if err := receive(connections[i], int64(min(from.BytesPerSecond/20, 4<<20)), nil); err != nil {
			return 0, err
		}
	}
	began := time.Now()
	var takes errgroup.Group
	for i, from := range pours {
		var sum hash.Hash
		if hashed {
			sum = sha256.New()
		}
		takes.Go(func() error { return receive(connections[i], from.Bytes, sum) })
	}
	err = takes.Wait()
	return time.Since(began).Seconds(), err
}

// receive asks for bytes and takes them.
func receive(from net.Conn, bytes int64, sum hash.Hash) error {
	if _, err := from.Write(binary.BigEndian.AppendUint64(nil, uint64(bytes))); err != nil {
		return err
	}
	for data := make([]byte, plainBytes); bytes > 0; {
		read, err := io.ReadFull(from, data[:min(bytes, plainBytes)])
		if err != nil {
			return err
		}
		if bytes -= int64(read); sum != nil {
			sum.Write(data[:read])
		}
	}
	return nil
}
