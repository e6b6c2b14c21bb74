package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
)

func (r result) String() string {
	text := fmt.Sprintf("%-48s %-5s %6.1f s", r.name, r.worker, r.seconds)
	if r.steps > 0 {
		text += fmt.Sprintf("  %d steps lost", r.steps)
	}
	if r.wrong != "" {
		text += "  " + r.wrong
	}
	return text
}

// write prints a row for each kind. It fails where a step was lost, or history did not name a failure.
func (s *stage) write(w io.Writer) error {
	fmt.Fprintf(w, "\n%-48s %5s %9s %9s %11s %12s\n", "failure", "times", "median, s", "most, s", "steps lost", "named wrong")
	steps, wrong := uint64(0), 0
	for _, f := range failures {
		var seconds []float64
		var lost uint64
		misnamed := 0
		for _, r := range s.results {
			if r.name != f.name {
				continue
			}
			seconds = append(seconds, r.seconds)
			lost += r.steps
			if r.wrong != "" {
				misnamed++
			}
		}
		if len(seconds) == 0 {
			continue
		}
		slices.Sort(seconds)
		fmt.Fprintf(w, "%-48s %5d %9.1f %9.1f %11d %12d\n", f.name, len(seconds), seconds[len(seconds)/2], seconds[len(seconds)-1], lost, misnamed)
		steps, wrong = steps+lost, wrong+misnamed
	}
	fmt.Fprintf(w, "%d failures, %d steps lost, %d named wrong\n", len(s.results), steps, wrong)
	if steps > 0 || wrong > 0 {
		return errors.New("expected no step lost, and each failure named right in history")
	}
	return nil
}

// writeTo writes the report to a file, too; its verdict is that of write.
func (s *stage) writeTo(path string) error {
	if path == "" {
		return nil
	}
	file, err := os.Create(path)
	if err != nil {
		return err
	}
	_ = s.write(file) // whose verdict was heard
	return file.Close()
}
