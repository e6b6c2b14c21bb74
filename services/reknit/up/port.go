package up

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"syscall"

	"github.com/reknit/reknit/services/reknit/internal/files"
	"github.com/reknit/reknit/services/reknit/processes"
)

// freePort returns the port on which NATS is to listen. One that nobody named is kept for the next time, since agents know the address.
func (o options) freePort() (int, error) {
	if o.port > 0 {
		return o.port, o.free(o.port)
	}
	kept := filepath.Join(o.dir, "port")
	if text, err := os.ReadFile(kept); err == nil {
		if port, err := strconv.Atoi(string(text)); err == nil && port > 0 && port < 1<<16 && o.free(port) == nil {
			return port, nil
		}
	}
	listener, err := net.Listen("tcp", net.JoinHostPort(o.host, "0"))
	if err != nil {
		return 0, fmt.Errorf("--port: %w", err)
	}
	port := listener.Addr().(*net.TCPAddr).Port
	if err := errors.Join(listener.Close(), files.Replace(kept, []byte(strconv.Itoa(port)), 0o644)); err != nil {
		return 0, fmt.Errorf("--dir: the port is not kept: %w", err)
	}
	return port, nil
}

// pageAddress returns where the page is served. A free port that nobody named is kept for the next time, too.
func (o options) pageAddress() (string, error) {
	const auto = "auto"
	kept := filepath.Join(o.dir, "page")
	if text, err := os.ReadFile(kept); err == nil && o.page == auto {
		if address, err := processes.PageAddress(string(text)); err == nil {
			return address, nil
		}
	}
	address, err := processes.PageAddress(o.page)
	if err != nil || o.page != auto {
		return address, err
	}
	if err := files.Replace(kept, []byte(address), 0o644); err != nil {
		return "", fmt.Errorf("--dir: the address of the page is not kept: %w", err)
	}
	return address, nil
}

// free returns an error where somebody listens on a port already: the server would try again and again.
func (o options) free(port int) error {
	listener, err := net.Listen("tcp", net.JoinHostPort(o.host, strconv.Itoa(port)))
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		return fmt.Errorf("--port: %d is taken, by another reknit up maybe; --port 0 takes a free one, and says which", port)
	case err != nil:
		return fmt.Errorf("--port: %w", err)
	}
	return listener.Close()
}
