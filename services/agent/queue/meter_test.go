package queue

import (
	"testing"
	"time"
)

// A lost packet holds up what comes behind it, and then all of it comes at a time.
func TestABurstBehindAGapIsNoFasterLink(t *testing.T) {
	const rate, gap = 20e6, 300 * time.Millisecond
	var m meter
	now := time.Unix(0, 0)
	m.start(now)
	chunk := time.Duration(ChunkBytes / rate * 1e9)
	for range 20 {
		now = now.Add(chunk)
		m.add(ChunkBytes, now)
	}
	now = now.Add(gap)
	for range gap / chunk {
		m.add(ChunkBytes, now)
	}
	if speed, _ := m.speed(now); speed < 0.9*rate || speed > 1.1*rate {
		t.Errorf("%.0f bytes/s of a link of %.0f", speed, rate)
	}
}

// At 4 Mbit/s a chunk takes a second, more than the window.
func TestALinkThatIsSlowerThanTheWindowHasARate(t *testing.T) {
	const rate = 0.5 * ChunkBytes
	var m meter
	now := time.Unix(0, 0)
	m.start(now)
	for i := range 200 {
		now = now.Add(50 * time.Millisecond)
		if i%40 == 39 {
			m.add(ChunkBytes, now)
		}
		if speed, known := m.speed(now); i > 80 && (!known || speed < rate/2 || speed > 1.1*rate) {
			t.Fatalf("%.0f bytes/s of a link of %.0f, known: %t", speed, rate, known)
		}
	}
}

func TestTheSilenceOfASourceThatFailedIsNoneOfItsRate(t *testing.T) {
	const rate = 20e6
	var m meter
	now := time.Unix(0, 0)
	m.start(now)
	for range 40 {
		now = now.Add(time.Duration(ChunkBytes / rate * 1e9))
		m.add(ChunkBytes, now)
	}
	now = now.Add(3 * time.Second)
	m.stop(now) // its connection is given up
	m.start(now)
	if speed, known := m.speed(now); !known || speed < 0.9*rate || speed > 1.1*rate {
		t.Errorf("%.0f bytes/s are expected of a source that brought %.0f", speed, rate)
	}
}
