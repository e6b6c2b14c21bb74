package agentd

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/reknit/reknit/services/agent/rest"
)

// tick is the unit of processor time in /proc, on all architectures (USER_HZ).
const tick = 10 * time.Millisecond

// process is one as the kernel tells of it.
type process struct {
	parent, group int
	state         byte          // the letter that Linux has for what it does
	used          time.Duration // by its children that have ended, too
}

// usedBy returns what the processes of a group have used, with those that descend from them, and one of them that a signal or a debugger
// has stopped; zero: none is. It is not known where the kernel does not tell what they write.
func usedBy(group int) (used rest.Used, stopped int, isKnown bool) {
	all := processes()
	isOf := func(pid int) bool {
		for range len(all) { // the table was read while processes ended: it may have a circle
			one, there := all[pid]
			if !there || one.group == group {
				return there
			}
			pid = one.parent
		}
		return false
	}
	for pid, one := range all {
		if !isOf(pid) {
			continue
		}
		if one.state == 'T' || one.state == 't' {
			stopped = pid
		}
		used.Processor += one.used
		if writes, told := writesOf(pid); told {
			used.Writes, isKnown = used.Writes+writes, true
		}
	}
	return used, stopped, isKnown
}

// processes returns those of the machine by their ids.
func processes() map[int]process {
	all := map[int]process{}
	tables, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		return nil
	}
	for _, path := range tables {
		text, err := os.ReadFile(path)
		behind := bytes.LastIndexByte(text, ')') // of its name, which may hold anything
		if err != nil || behind < 0 {
			continue
		}
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(path)))
		fields := bytes.Fields(text[behind+1:])
		if err != nil || len(fields) < 15 {
			continue
		}
		number := func(i int) int { n, _ := strconv.Atoi(string(fields[i])); return n }
		one := process{parent: number(1), group: number(2), state: fields[0][0]}
		for i := 11; i < 15; i++ { // utime, stime, cutime and cstime of proc_pid_stat(5)
			one.used += time.Duration(number(i)) * tick
		}
		all[pid] = one
	}
	return all
}

// writesOf returns how many calls of a process wrote.
func writesOf(pid int) (writes uint64, isTold bool) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/io", pid))
	_, behind, isThere := bytes.Cut(text, []byte("syscw: "))
	if err != nil || !isThere {
		return 0, false
	}
	line, _, _ := bytes.Cut(behind, []byte("\n"))
	writes, err = strconv.ParseUint(string(line), 10, 64)
	return writes, err == nil
}
