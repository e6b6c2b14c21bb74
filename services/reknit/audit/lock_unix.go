//go:build unix

package audit

import (
	"os"
	"syscall"
)

// lock keeps others from writing a file, until it is closed or the process ends.
func lock(file *os.File) error { return syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) }
