package main

import (
	"crypto/sha256"
	"time"
)

// A step of a trainer: most of it on its device, while the process sleeps, and a little work to feed the device.
const (
	deviceTime = 49 * time.Millisecond
	hostBytes  = 1 << 20 // hashed: about 1 ms
)

// training is a loop of steps of equal length, as far as the process is let run.
type training struct {
	stop    chan struct{}
	trained chan Trained
}

func train() *training {
	t := &training{stop: make(chan struct{}), trained: make(chan Trained, 1)}
	go t.run()
	return t
}

func (t *training) run() {
	batch, began := make([]byte, hostBytes), time.Now()
	var result Trained
	for {
		select {
		case <-t.stop:
			t.trained <- result
			return
		case <-time.After(deviceTime):
			sha256.Sum256(batch)
			result.Steps++
			result.Seconds = time.Since(began).Seconds()
		}
	}
}

// end waits for the step that is under way.
func (t *training) end() Trained {
	t.stop <- struct{}{}
	return <-t.trained
}
