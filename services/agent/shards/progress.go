package shards

import (
	"fmt"
	"strings"
	"time"

	"github.com/reknit/reknit/services/agent/queue"
)

// State says what a source is doing.
type State string

// The states of a source.
const (
	Away    State = "away"    // there is no connection to it
	Idle    State = "idle"    // nothing is asked of it
	Active  State = "active"  // it sends
	Slow    State = "slow"    // it sends less than a quarter of the planned rate
	Stalled State = "stalled" // it was left alone after three faults, or says nothing
	Corrupt State = "corrupt" // it served two corrupt parts and is asked for nothing more
)

// Progress tells how far a transfer is. After Run it is the result.
type Progress struct {
	Done      int64 // verified
	Total     int64
	Duplicate int64 // that came although they were there already, of all sources
	Seconds   float64
	Sources   []SourceProgress
}

// SourceProgress tells what a source did.
type SourceProgress struct {
	Name           string
	State          State
	Bytes          int64   // that came
	Recent         float64 // lately
	BytesPerSecond float64 // while something was asked of it: a measurement of the link
	Corrupt        int
	Stalled        int
	Duplicate      int64
	StartSeconds   float64 // from when it was asked first until its first byte came; zero: nothing came
}

// Progress may be called at any time.
func (t *Transfer) Progress() Progress {
	t.mutex.Lock()
	defer t.mutex.Unlock()
	now := time.Now()
	progress := Progress{Done: t.queue.Done, Total: t.queue.Total}
	if t.took > 0 {
		now = t.began.Add(t.took)
	}
	if !t.began.IsZero() {
		progress.Seconds = now.Sub(t.began).Seconds()
	}
	for _, p := range t.queue.Sources {
		progress.Duplicate += p.Duplicate
		progress.Sources = append(progress.Sources, SourceProgress{
			Name: p.Name, State: stateOf(p, now), Bytes: p.Bytes(), Recent: p.Recent(now),
			BytesPerSecond: p.Mean(now), Corrupt: p.Corrupt, Stalled: p.Stalled,
			Duplicate: p.Duplicate,
		})
		progress.Sources[len(progress.Sources)-1].StartSeconds = p.Waited(now)
	}
	return progress
}

func stateOf(p *queue.Source, now time.Time) State {
	const slow = 0.25
	switch {
	case p.Out():
		return Corrupt
	case !p.Connected:
		return Away
	case p.Failing():
		return Stalled
	case !p.Busy():
		return Idle
	case p.Recent(now) < slow*p.Planned():
		return Slow
	}
	return Active
}

// String is a line for people.
func (p Progress) String() string {
	var line strings.Builder
	fmt.Fprintf(&line, "%.1f of %.1f MiB", mebibytes(p.Done), mebibytes(p.Total))
	for _, source := range p.Sources {
		fmt.Fprintf(&line, ", %s %s", source.Name, source.State)
		if source.Recent > 0 {
			fmt.Fprintf(&line, " %.1f MiB/s", source.Recent/(1<<20))
		}
	}
	return line.String()
}

func mebibytes(bytes int64) float64 { return float64(bytes) / (1 << 20) }
