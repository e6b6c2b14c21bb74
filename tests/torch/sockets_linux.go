package torch

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"

	"golang.org/x/sys/unix"
)

// BreakCollective shuts the connections of a training script to its peers, while everybody lives: what a switch or a
// firewall does that forgets its connections.
func (w *Worker) BreakCollective() error {
	pid, err := w.Trainer()
	if err != nil {
		return err
	}
	process, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return fmt.Errorf("%s: open process %d: %w", w.Name, pid, err)
	}
	defer func() { _ = unix.Close(process) }() // nothing was written
	files, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
	if err != nil {
		return err
	}
	broken := 0
	for _, file := range files {
		number, _ := strconv.Atoi(file.Name())
		shut, err := shutConnection(process, number, w.spared)
		if err != nil {
			return fmt.Errorf("%s: file %d of process %d: %w", w.Name, number, pid, err)
		}
		if shut {
			broken++
		}
	}
	if broken == 0 {
		return fmt.Errorf("%s: expected connections to peers, found none", w.Name)
	}
	return nil
}

// shutConnection shuts a file of another process if it is a TCP connection.
func shutConnection(process, number int, spared []int) (shut bool, err error) {
	file, err := unix.PidfdGetfd(process, number, 0)
	if errors.Is(err, unix.EBADF) {
		return false, nil // closed meanwhile
	}
	if err != nil {
		return false, err
	}
	defer func() { _ = unix.Close(file) }() // a copy of what the other process has
	peer, err := unix.Getpeername(file)
	if err != nil {
		return false, nil // no socket, or not connected
	}
	port := 0
	switch peer := peer.(type) {
	case *unix.SockaddrInet4:
		port = peer.Port
	case *unix.SockaddrInet6:
		port = peer.Port
	default:
		return false, nil
	}
	if slices.Contains(spared, port) {
		return false, nil
	}
	return true, unix.Shutdown(file, unix.SHUT_RDWR)
}
