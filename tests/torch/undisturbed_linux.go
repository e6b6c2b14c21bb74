package torch

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

// Undisturbed trains so many steps of a script in one process, on the samples that several would train, and returns
// them. Its sums have another order, so that its losses differ by rounding.
func Undisturbed(ctx context.Context, place Place, script, directory string, steps uint64) ([]Step, error) {
	log, err := os.Create(filepath.Join(directory, "undisturbed.log"))
	if err != nil {
		return nil, err
	}
	defer log.Close()
	course := newCourse()
	command := exec.CommandContext(ctx, Python, place.script(script),
		"--text", place.Text, "--steps", fmt.Sprint(steps))
	command.Dir, command.Env = directory, append(os.Environ(), place.environment("undisturbed")...) // where the model is saved
	command.Stdout, command.Stderr = &listener{course: course, log: log}, log
	if err := command.Run(); err != nil {
		return nil, fmt.Errorf("undisturbed training: %w; see %s", err, log.Name())
	}
	return course.Steps(), nil
}
