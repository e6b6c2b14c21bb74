package processes

import (
	"log/slog"
	"syscall"
)

// dieWithParent has the kernel kill a child whose parent was killed, so that none is left behind.
func dieWithParent() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
}

// trainerNiceness lets the control plane run first where trainers compute on all cores. On a real cluster they compute
// elsewhere.
const trainerNiceness = 5

// yieldToControl lowers the priority of a process group, all its threads included.
func yieldToControl(pid int) {
	if err := syscall.Setpriority(syscall.PRIO_PGRP, pid, trainerNiceness); err != nil {
		slog.Debug("priority not lowered", "error", err)
	}
}
