package main

import (
	"context"
	"fmt"
	"os"
	"time"
)

// calm waits until the machine is idle, for a while. It does not wait if that cannot be told.
func calm(ctx context.Context) {
	const (
		idleShare = 0.9
		look      = 100 * time.Millisecond
	)
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	idle, all := processorTime()
	for ctx.Err() == nil {
		time.Sleep(look)
		idleNow, allNow := processorTime()
		if idleNow-idle >= idleShare*(allNow-all) {
			return
		}
		idle, all = idleNow, allNow
	}
}

// processorTime is what Linux counts of all processors since the machine started.
func processorTime() (idle, all float64) {
	text, err := os.ReadFile("/proc/stat")
	if err != nil {
		return 0, 0
	}
	var times [7]float64
	_, err = fmt.Sscanf(string(text), "cpu %f %f %f %f %f %f %f",
		&times[0], &times[1], &times[2], &times[3], &times[4], &times[5], &times[6])
	if err != nil {
		return 0, 0
	}
	for _, time := range times {
		all += time
	}
	return times[3], all
}
