package dev

import (
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/reknit/reknit/events"
	"github.com/reknit/reknit/services/trainer/model"
)

// Report is what --report writes.
type Report struct {
	Digest       string   `json:"digest"`       // of the model that the cluster trained
	OracleDigest string   `json:"oracleDigest"` // of the model that an undisturbed process trained; empty: it was not judged
	Equal        bool     `json:"equal"`
	Error        string   `json:"error,omitempty"`
	Trainers     int      `json:"trainers"`
	Steps        uint64   `json:"steps"`
	Seed         uint64   `json:"seed"`
	Seconds      float64  `json:"seconds"` // from the start of the processes to the last step
	Changes      []Change `json:"changes"`

	disagreement string
	unjudged     bool
}

// status is where training stands.
type status struct {
	step       uint64
	loss       float64
	generation uint64
	shape      string
}

func (s *story) status() status {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	now := status{step: s.step()}
	for _, pulse := range s.nodes {
		if pulse.Loss > 0 && pulse.Step == now.step {
			now.loss = pulse.Loss
		}
	}
	if s.plan != nil {
		now.generation, now.shape = s.plan.Generation, s.plan.Shape()
	}
	return now
}

// snapshot returns the changes as they stand.
func (s *story) snapshot() []Change {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	changes := make([]Change, len(s.changes))
	for i, change := range s.changes {
		changes[i] = *change
	}
	return changes
}

// quiet returns how long ago the last step was completed.
func (s *story) quiet(now time.Time) time.Duration {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	return now.Sub(s.lastStep)
}

// why tells what the cluster last said about standing still.
func (s *story) why() string {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	if s.held != "" {
		return "; the cluster holds: " + s.held
	}
	return ""
}

// holding tells why the cluster holds; empty where it does not.
func (s *story) holding() string {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	return s.held
}

// ended reports whether training is complete and every change healed; the mutex is held.
func ended(s *story) bool { return s.complete() && len(s.open()) == 0 }

func (s *story) report(options Options) Report {
	changes := s.snapshot()
	s.mutex.Lock()
	defer s.mutex.Unlock()
	report := Report{
		Trainers: options.Trainers, Steps: options.Steps, Seed: options.Seed, Changes: changes,
		Seconds: time.Since(s.began).Seconds(), unjudged: options.Unjudged,
	}
	var digests []string
	for row := range len(s.digests) {
		holders := s.digests[row]
		if len(holders) != 1 {
			report.disagreement = fmt.Sprintf("holders of %s told %d different digests", s.rowName(row), len(holders))
			return report
		}
		for digest := range holders {
			digests = append(digests, digest)
		}
	}
	if len(digests) > 0 {
		report.Digest = model.ModelDigest(digests)
	}
	return report
}

// rowName says what a row of the state is; the mutex is held.
func (s *story) rowName(row int) string {
	if s.plan == nil {
		return fmt.Sprintf("row %d", row)
	}
	return events.UnitName(row, s.plan.LayerCount())
}

// verdict compares the digests and looks for changes that did not heal.
func (r *Report) verdict() error {
	r.Equal = r.disagreement == "" && r.Digest == r.OracleDigest
	unhealed := slices.IndexFunc(r.Changes, func(change Change) bool { return !change.Healed })
	switch {
	case r.disagreement != "":
		return fmt.Errorf("%w: %s", ErrNotHealed, r.disagreement)
	case unhealed >= 0:
		return fmt.Errorf("%w: %s%s", ErrNotHealed, r.Changes[unhealed].Action, because(r.Changes[unhealed].Refused))
	case !r.Equal && !r.unjudged:
		return fmt.Errorf("%w: the model's digest %s is not the oracle's %s", ErrNotHealed, r.Digest, r.OracleDigest)
	}
	return nil
}

func because(reason string) string {
	if reason == "" {
		return ""
	}
	return ": " + reason
}

func (r *Report) write(path string) error {
	data, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(path, append(data, '\n'), 0o644)
}

// lines are the last words of a run; what failed is the error's to say.
func (r *Report) lines() []string {
	switch {
	case r.Digest == "":
		return nil
	case r.OracleDigest == "":
		return []string{"", "model digest  " + r.Digest + ", which was not judged"}
	}
	lines := []string{"", "model digest  " + r.Digest, "oracle digest " + r.OracleDigest}
	if r.Error != "" {
		return lines
	}
	return append(lines, fmt.Sprintf("equal: %d changes, all healed, and the model is the one an undisturbed run trains",
		len(r.Changes)))
}
