package agentd

import "syscall"

// attributes keep a terminal's signals from the trainer, and end it with its agent: an agent that is started again
// starts a trainer of its own.
func attributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
