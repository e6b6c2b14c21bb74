package torch

import (
	"bufio"
	"fmt"
	"os"
	"strings"
)

// Resident returns which part of the units that its script has mapped is in memory. A unit that was never written, or whose
// memory was given back, is not.
func (w *Worker) Resident() (float64, error) {
	pid, err := w.Trainer()
	if err != nil {
		return 0, err
	}
	file, err := os.Open(fmt.Sprintf("/proc/%d/smaps", pid))
	if err != nil {
		return 0, err
	}
	defer file.Close()
	var size, resident, kilobytes int64
	isUnit := false
	for lines := bufio.NewScanner(file); lines.Scan(); {
		words := strings.Fields(lines.Text())
		if !strings.HasSuffix(words[0], ":") { // the head of a mapping
			isUnit = strings.Contains(lines.Text(), "/unit-")
			continue
		}
		if _, err := fmt.Sscan(words[1], &kilobytes); !isUnit || err != nil {
			continue
		}
		switch words[0] {
		case "Size:":
			size += kilobytes
		case "Rss:":
			resident += kilobytes
		}
	}
	if size == 0 {
		return 0, fmt.Errorf("%s: expected its script to have mapped units", w.Name)
	}
	return float64(resident) / float64(size), nil
}
