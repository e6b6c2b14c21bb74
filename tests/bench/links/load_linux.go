package main

import (
	"fmt"
	"os"
	"strings"
)

// processors is the time that this machine's processors have spent, in ticks.
type processors struct{ all, idle float64 }

func processorTime() processors {
	var p processors
	text, _ := os.ReadFile("/proc/stat")
	line, _, _ := strings.Cut(string(text), "\n")
	for column, field := range strings.Fields(line) {
		const idle, waiting, guest = 4, 5, 9 // guests are in user time already
		var ticks float64
		if _, err := fmt.Sscan(field, &ticks); err != nil || column >= guest {
			continue
		}
		p.all += ticks
		if column == idle || column == waiting {
			p.idle += ticks
		}
	}
	return p
}

// busySince is the share of the time since before in which the processors worked.
func (p processors) busySince(before processors) float64 {
	if p.all == before.all {
		return 0
	}
	return 1 - (p.idle-before.idle)/(p.all-before.all)
}

// load is the machine's load average and TCP's congestion control, without which no figure can be read.
func load() string {
	average, _ := os.ReadFile("/proc/loadavg")
	control, _ := os.ReadFile("/proc/sys/net/ipv4/tcp_congestion_control")
	return fmt.Sprintf("load %s, %s", strings.Join(strings.Fields(string(average))[:1], ""),
		strings.TrimSpace(string(control)))
}
