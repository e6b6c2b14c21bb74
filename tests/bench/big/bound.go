package main

import (
	"crypto/sha256"
	"errors"
	"io"
	"net"
	"time"
)

const copiedBytes = 1 << 30

// copyRate returns how many bytes/s of one TCP connection over loopback a reader takes that hashes them: what a link
// carries at most to one who verifies what comes.
func copyRate() (bytesPerSecond float64, err error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	defer listener.Close()
	sent := make(chan error, 1)
	go func() { sent <- send(listener.Addr().String()) }()
	connection, err := listener.Accept()
	if err != nil {
		return 0, err
	}
	defer connection.Close()
	began := time.Now()
	bytes, err := io.CopyBuffer(sha256.New(), struct{ io.Reader }{connection}, make([]byte, 1<<20))
	return float64(bytes) / time.Since(began).Seconds(), errors.Join(err, <-sent)
}

func send(address string) error {
	connection, err := net.Dial("tcp", address)
	if err != nil {
		return err
	}
	defer connection.Close()
	data := make([]byte, 1<<20)
	for range copiedBytes / len(data) {
		if _, err := connection.Write(data); err != nil {
			return err
		}
	}
	return nil
}
