//go:build unix

package main

import (
	"syscall"
	"time"
)

// spent is the CPU time of this process so far.
func spent() time.Duration {
	var usage syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &usage) != nil {
		return 0
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}
