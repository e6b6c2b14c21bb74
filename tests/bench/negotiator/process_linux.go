package main

import (
	"fmt"
	"os"
	"strconv"
	"strings"
)

const (
	ticksPerSecond = 100 // the kernel's, in /proc
	behindName     = 11  // fields of /proc/PID/stat between the name and the processor's time
)

// usedBy reads what a process has used from /proc.
func usedBy(pid int) (use, error) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return use{}, err
	}
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return use{}, err
	}
	fields := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
	user, _ := strconv.ParseFloat(fields[behindName], 64)
	system, _ := strconv.ParseFloat(fields[behindName+1], 64)
	_, peak, _ := strings.Cut(string(status), "VmHWM:")
	kibibytes, err := strconv.ParseInt(strings.Fields(peak)[0], 10, 64)
	return use{(user + system) / ticksPerSecond, kibibytes << 10}, err
}
