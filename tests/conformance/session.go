package main

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"time"
)

// caseFile is one kind of case. A file without a kind holds what other files refer to.
type caseFile struct {
	Kind  string
	Cases json.RawMessage
}

type caseOf struct {
	ID              string
	Input, Expected json.RawMessage
}

// answerLine is what is printed per case.
type answerLine struct {
	Kind   string `json:"kind"`
	ID     string `json:"id"`
	Answer answer `json:"answer"` // null where there is none
}

// session is one run over a folder.
type session struct {
	out, complaints  io.Writer
	folder           string // of the case files
	tallies          map[string]*tally
	faults, unsolved int
}

// tally is how a kind fared.
type tally struct {
	cases, right int
	seconds      float64
}

func (s *session) solveFolder(folder string) error {
	s.folder = folder
	names, err := filepath.Glob(filepath.Join(folder, "*.json"))
	if err != nil {
		return err
	}
	for _, name := range names {
		if err := s.solveFile(name); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	if len(s.tallies) == 0 {
		return fmt.Errorf("%s: expected a *.json file with cases", folder)
	}
	return nil
}

func (s *session) solveFile(name string) error {
	data, err := os.ReadFile(name)
	if err != nil {
		return err
	}
	var file caseFile
	if err := json.Unmarshal(data, &file); err != nil {
		return err
	}
	if file.Kind == "" {
		return nil
	}
	var cases []caseOf
	if err := json.Unmarshal(file.Cases, &cases); err != nil {
		return fmt.Errorf("cases: %w", err)
	}
	if len(cases) == 0 {
		return fmt.Errorf("cases: expected at least one %s", file.Kind)
	}
	if s.tallies[file.Kind] == nil {
		s.tallies[file.Kind] = &tally{}
	}
	kind, solved := kinds[file.Kind]
	if !solved {
		s.tallies[file.Kind].cases += len(cases)
		s.unsolved += len(cases)
		fmt.Fprintf(s.complaints, "%s: not solved yet (%d cases)\n", file.Kind, len(cases))
		return nil
	}
	for _, c := range cases {
		if err := s.solve(file.Kind, kind, c); err != nil {
			return fmt.Errorf("%s: %w", c.ID, err)
		}
	}
	return nil
}

// solve answers one case and judges the answer; what makes the case unreadable is an error.
func (s *session) solve(name string, kind kind, c caseOf) error {
	tally, start := s.tallies[name], time.Now()
	var answer answer
	input, err := resolve(s.folder, c.Input)
	if err == nil {
		answer, err = kind.solve(input)
	}
	tally.seconds += time.Since(start).Seconds()
	tally.cases++
	line, marshalErr := json.Marshal(answerLine{name, c.ID, answer})
	if marshalErr != nil {
		return marshalErr
	}
	fmt.Fprintf(s.out, "%s\n", line)
	var faults []string
	if err != nil {
		faults = []string{err.Error()}
	} else if faults, err = kind.faults(c.Expected, answer); err != nil {
		return err
	}
	for _, fault := range faults {
		fmt.Fprintf(s.complaints, "%s: %s\n", c.ID, fault)
	}
	s.faults += len(faults)
	if len(faults) == 0 {
		tally.right++
	}
	return nil
}

// summarise writes the last line: per kind the right answers of all cases and the seconds to solve them, and the sums.
func (s *session) summarise() {
	var all tally
	for _, kind := range slices.Sorted(maps.Keys(s.tallies)) {
		tally := s.tallies[kind]
		fmt.Fprintf(s.complaints, "%s %d/%d %.3f s, ", kind, tally.right, tally.cases, tally.seconds)
		all.cases, all.right, all.seconds = all.cases+tally.cases, all.right+tally.right, all.seconds+tally.seconds
	}
	fmt.Fprintf(s.complaints, "all %d/%d %.3f s\n", all.right, all.cases, all.seconds)
}
