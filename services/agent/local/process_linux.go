package local

import (
	"net"
	"syscall"
)

// processOf returns the id of the process at the other end of a Unix socket; zero where it is not known.
func processOf(connection net.Conn) (pid int) {
	unix, ok := connection.(*net.UnixConn)
	if !ok {
		return 0
	}
	raw, err := unix.SyscallConn()
	if err != nil {
		return 0
	}
	_ = raw.Control(func(fd uintptr) {
		if credentials, err := syscall.GetsockoptUcred(int(fd), syscall.SOL_SOCKET, syscall.SO_PEERCRED); err == nil {
			pid = int(credentials.Pid)
		}
	})
	return pid
}
