//go:build !linux

package agentd

import "syscall"

// attributes keep a terminal's signals from the trainer.
func attributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }
