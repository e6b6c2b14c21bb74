//go:build unix

package figures

import (
	"syscall"
	"time"
)

// Spent is the CPU time of this process so far.
func Spent() time.Duration {
	var usage syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &usage) != nil {
		return 0
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}
