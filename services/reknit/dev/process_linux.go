package dev

import "syscall"

// dieWithParent has the kernel kill a child whose parent was killed, so that none is left behind.
func dieWithParent() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
}
