package dev

import (
	"fmt"
	"io"
	"sync"
	"text/tabwriter"
	"time"

	"github.com/schollz/progressbar/v3"
)

// screen shows a run to a person: a progress bar on a terminal, lines otherwise, and each change as it happens.
type screen struct {
	mutex    sync.Mutex
	out      io.Writer
	bar      *progressbar.ProgressBar // nil where out is no terminal
	lastLine time.Time
	steps    uint64 // of the run that judges
	healed   int    // changes shown as healed
	held     string // why the cluster holds, as shown
}

// A reader of a log file wants a sign of life, not a line a step.
const lineEvery = 5 * time.Second

func newScreen(out io.Writer, terminal bool, steps uint64) *screen {
	s := &screen{out: out}
	if terminal {
		s.bar = newBar(out, steps, "starting")
	}
	return s
}

func newBar(out io.Writer, steps uint64, says string) *progressbar.ProgressBar {
	return progressbar.NewOptions64(int64(steps), progressbar.OptionSetWriter(out), progressbar.OptionSetWidth(30),
		progressbar.OptionShowCount(), progressbar.OptionSetDescription(says), progressbar.OptionThrottle(50*time.Millisecond))
}

// judge begins to show how far the undisturbed run is.
func (s *screen) judge(steps uint64) {
	if s.bar != nil {
		s.bar = newBar(s.out, steps, "judging")
	}
	s.steps, s.lastLine = steps, time.Now()
}

// judged shows how far it is.
func (s *screen) judged(step uint64) {
	switch {
	case s.bar != nil:
		s.bar.Set64(int64(step))
	case time.Since(s.lastLine) >= lineEvery:
		s.lastLine = time.Now()
		fmt.Fprintf(s.out, "judging: step %d of %d\n", step, s.steps)
	}
}

func (s *screen) println(text string) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	if s.bar != nil {
		s.bar.Clear()
	}
	fmt.Fprintln(s.out, text)
}

// holding shows why the cluster holds, once.
func (s *screen) holding(reason string) {
	if reason != "" && reason != s.held {
		s.println("          the cluster holds: " + reason)
	}
	s.held = reason
}

// progress shows where training stands, once there is a plan.
func (s *screen) progress(status status) {
	if status.generation == 0 {
		return
	}
	s.mutex.Lock()
	defer s.mutex.Unlock()
	text := fmt.Sprintf("generation %d  %s trainers", status.generation, status.shape)
	if status.loss > 0 { // told by the last stage, after the step
		text = fmt.Sprintf("loss %.3f  %s", status.loss, text)
	}
	if s.bar != nil {
		s.bar.Describe(text)
		s.bar.Set64(int64(status.step))
		return
	}
	if time.Since(s.lastLine) >= lineEvery {
		s.lastLine = time.Now()
		fmt.Fprintf(s.out, "step %d  %s\n", status.step, text)
	}
}

// acted says that an action is done.
func (s *screen) acted(change *Change) {
	s.println(fmt.Sprintf("step %-4d %s", change.Step, change.Action))
}

// healing shows the changes that ended since it was last called.
func (s *screen) healing(changes []Change) {
	for _, change := range changes[min(s.healed, len(changes)):] {
		if !change.Healed {
			return
		}
		s.healed++
		s.println("          " + change.line())
		if change.Generation != 0 {
			s.println(change.table())
		}
	}
}

// line tells the end of a change in one line.
func (c Change) line() string {
	switch {
	case c.Overtaken:
		return "overtaken: the node was killed before"
	case c.Generation == 0 && c.Kind != serviceRestart:
		return "healed: the others work without it"
	case c.Kind == serviceRestart:
		return fmt.Sprintf("healed: back and acting after %s; longest stall of training %s", seconds(c.DetectedSeconds),
			stall(c.StallSeconds, c.StallSteps))
	}
	return fmt.Sprintf("healed: generation %d, %s (%s); every trainer at its next step %s after it was done",
		c.Generation, c.Shape, c.Policy, seconds(c.NextStepSeconds))
}

// table shows the phases of a change.
func (c Change) table() string {
	var text writer
	table := tabwriter.NewWriter(&text, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "            after it was done: detected\tplanned\ttransferred\tcommitted\tstall seen by trainers\tbytes moved\t"+
		"least for this shape\ta restart would move")
	fmt.Fprintf(table, "            %s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", seconds(c.DetectedSeconds), seconds(c.PlannedSeconds),
		seconds(c.TransferredSeconds), seconds(c.CommittedSeconds), stall(c.StallSeconds, c.StallSteps), c.moved(),
		c.least(), bytes(c.NaiveBytes))
	table.Flush()
	return string(text[:len(text)-1])
}

func (c Change) least() string {
	if !c.leastKnown {
		return "not known"
	}
	return bytes(c.LeastBytes)
}

func (c Change) moved() string {
	if c.Sources == 0 {
		return bytes(c.BytesMoved)
	}
	if c.Sources == 1 {
		return bytes(c.BytesMoved) + " from 1 neighbour"
	}
	return fmt.Sprintf("%s from %d neighbours", bytes(c.BytesMoved), c.Sources)
}

type writer []byte

func (w *writer) Write(data []byte) (int, error) {
	*w = append(*w, data...)
	return len(data), nil
}

func seconds(value float64) string {
	if value < 1 {
		return fmt.Sprintf("%.0f ms", value*1e3)
	}
	return fmt.Sprintf("%.2f s", value)
}

func stall(inSeconds, inSteps float64) string {
	return fmt.Sprintf("%s (%.1f steps)", seconds(inSeconds), inSteps)
}

func bytes(count int64) string {
	if count < 1<<20 {
		return fmt.Sprintf("%.0f KiB", float64(count)/(1<<10))
	}
	return fmt.Sprintf("%.1f MiB", float64(count)/(1<<20))
}
