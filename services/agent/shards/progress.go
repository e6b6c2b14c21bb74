package shards

import (
	"fmt"
	"strings"
	"time"
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
	Done      int64            `json:"doneBytes"` // verified
	Total     int64            `json:"totalBytes"`
	Duplicate int64            `json:"duplicateBytes"` // that came although they were there already, of all sources
	Seconds   float64          `json:"seconds"`
	Sources   []SourceProgress `json:"sources"`
}

// SourceProgress tells what a source did.
type SourceProgress struct {
	Name           string  `json:"name"`
	State          State   `json:"state"`
	Bytes          int64   `json:"bytes"`                // that came
	Recent         float64 `json:"recentBytesPerSecond"` // lately
	BytesPerSecond float64 `json:"bytesPerSecond"`       // while something was asked of it: a measurement of the link
	Corrupt        int     `json:"corruptParts"`
	Lacked         int     `json:"lackedChunks"` // that its manifests list and its server dropped
	Stalled        int     `json:"stalls"`
	Duplicate      int64   `json:"duplicateBytes"`
}

// Progress may be called at any time.
func (t *Transfer) Progress() Progress {
	t.mutex.Lock()
	defer t.mutex.Unlock()
	now := time.Now()
	progress := Progress{Done: t.queue.done, Total: t.queue.total}
	if t.took > 0 {
		now = t.began.Add(t.took)
	}
	if !t.began.IsZero() {
		progress.Seconds = now.Sub(t.began).Seconds()
	}
	for _, p := range t.queue.peers {
		progress.Duplicate += p.duplicate
		progress.Sources = append(progress.Sources, SourceProgress{
			Name: p.name, State: p.state(now), Bytes: p.meter.bytes, Recent: p.recent(now),
			BytesPerSecond: p.meter.mean(now), Corrupt: p.corrupt, Lacked: p.lacked, Stalled: p.stalled, Duplicate: p.duplicate,
		})
	}
	return progress
}

func (p *peer) recent(now time.Time) float64 {
	if !p.meter.asked || p.meter.bytes == 0 {
		return 0
	}
	rate, _ := p.meter.speed(now)
	return rate
}

func (p *peer) state(now time.Time) State {
	const slow = 0.25
	switch {
	case p.corrupt >= corruptOut:
		return Corrupt
	case !p.connected:
		return Away
	case p.strikes > 0:
		return Stalled
	case len(p.claims) == 0:
		return Idle
	case p.recent(now) < slow*p.meter.planned:
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
