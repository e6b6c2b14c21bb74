// Package host tells what the machine has that a node runs on, as Linux tells it; elsewhere nothing is known.
package host

import (
	"iter"
	"os"
	"path"
	"strconv"
	"strings"
)

const processors = "/sys/devices/system/cpu/online"

// Processors is how many the machine has, whichever of them this process may use; zero: not known.
func Processors() int {
	data, err := os.ReadFile(processors)
	if err != nil {
		return 0
	}
	return countOf(strings.TrimSpace(string(data)))
}

// countOf counts what a list as 0-3,8 names; zero: it is no such list.
func countOf(list string) (count int) {
	for run := range strings.SplitSeq(list, ",") {
		first, last, isRun := strings.Cut(run, "-")
		if !isRun {
			last = first
		}
		from, err := strconv.Atoi(first)
		to, err2 := strconv.Atoi(last)
		if err != nil || err2 != nil || from < 0 || to < from || to > 1<<16 {
			return 0
		}
		count += to - from + 1
	}
	return count
}

// MemoryBytes is what the machine has, or this process's control group where that may have less; zero: not known.
func MemoryBytes() int64 { return memoryIn("/") }

func memoryIn(root string) int64 {
	least := int64(0)
	take := func(bytes int64) {
		if bytes > 0 && (least == 0 || bytes < least) {
			least = bytes
		}
	}
	for line := range lines(path.Join(root, "proc/meminfo")) {
		if kilobytes, is := strings.CutPrefix(line, "MemTotal:"); is {
			take(number(strings.TrimSuffix(kilobytes, "kB")) * 1024)
		}
	}
	for line := range lines(path.Join(root, "proc/self/cgroup")) { // as 0::/group, or of the first version 4:memory:/group
		hierarchy, rest, _ := strings.Cut(line, ":")
		controllers, group, _ := strings.Cut(rest, ":")
		switch {
		case hierarchy == "0":
			for ; ; group = path.Dir(group) { // those around it may be narrower
				take(limit(path.Join(root, "sys/fs/cgroup", group, "memory.max")))
				if group == "/" || group == "." {
					break
				}
			}
		case controllers == "memory":
			take(limit(path.Join(root, "sys/fs/cgroup/memory", group, "memory.limit_in_bytes")))
			take(limit(path.Join(root, "sys/fs/cgroup/memory/memory.limit_in_bytes"))) // of a container, whose group has another name inside
		}
	}
	return least
}

func lines(file string) iter.Seq[string] {
	data, _ := os.ReadFile(file)
	return strings.SplitSeq(string(data), "\n")
}

// limit reads a file of one number, or of the word max.
func limit(file string) int64 {
	data, _ := os.ReadFile(file)
	return number(string(data))
}

func number(text string) int64 {
	value, err := strconv.ParseInt(strings.TrimSpace(text), 10, 64)
	if err != nil || value > 1<<53 {
		return 0
	}
	return value
}
