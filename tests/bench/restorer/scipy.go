package main

import (
	"bufio"
	"cmp"
	_ "embed" // the script
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"os/exec"
	"path/filepath"
)

//go:embed scipy.py
var script string

// python is the interpreter that has scipy: PYTHON names it.
var python = cmp.Or(os.Getenv("PYTHON"), "python3")

// scipy is a child process that solves assignments.
type scipy struct {
	version string
	command *exec.Cmd
	in      io.WriteCloser
	out     *bufio.Reader
	folder  string // of the matrices
}

// startScipy fails where there is no scipy, with the reason.
func startScipy(python string) (*scipy, error) {
	s := &scipy{command: exec.Command(python, "-c", script)}
	var err error
	if s.in, err = s.command.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := s.command.StdoutPipe()
	if err != nil {
		return nil, err
	}
	s.out = bufio.NewReader(out)
	if err := s.command.Start(); err != nil {
		return nil, err
	}
	if s.folder, err = os.MkdirTemp("", "matrices"); err != nil {
		return nil, errors.Join(err, s.stop())
	}
	if s.read(&s.version) != nil {
		return nil, fmt.Errorf("%s cannot import scipy (make bench-restorer installs it): %w", python, s.stop())
	}
	return s, nil
}

func (s *scipy) stop() error {
	s.in.Close() // the child ends with its input
	return errors.Join(s.command.Wait(), os.RemoveAll(s.folder))
}

func (s *scipy) read(into any) error {
	line, err := s.out.ReadBytes('\n')
	if err != nil {
		return fmt.Errorf("scipy: %w", err)
	}
	return json.Unmarshal(line, into)
}

// lay writes a matrix for solve. Its costs are integers times scale, which doubles hold exactly.
func (s *scipy) lay(name string, cost [][]int64, scale float64) (file string, err error) {
	data := make([]byte, 0, 8*len(cost)*len(cost))
	for _, row := range cost {
		for _, c := range row {
			data = binary.LittleEndian.AppendUint64(data, math.Float64bits(float64(c)*scale))
		}
	}
	file = filepath.Join(s.folder, name)
	return file, os.WriteFile(file, data, 0o600)
}

// solve returns the CPU seconds of one call, and the optimum.
func (s *scipy) solve(file string, n int) (seconds, total float64, err error) {
	if err := json.NewEncoder(s.in).Encode(map[string]any{"file": file, "n": n}); err != nil {
		return 0, 0, fmt.Errorf("scipy: %w", err)
	}
	var answer struct{ Seconds, Total float64 }
	err = s.read(&answer)
	return answer.Seconds, answer.Total, err
}
