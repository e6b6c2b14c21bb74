// Package dev runs a whole cluster on one machine: an embedded NATS server, the four services and some trainers as
// processes of their own, and a script of what happens to them. It ends with the digest of the model beside that of
// an undisturbed run.
package dev

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"time"
)

// ErrNotHealed says that the run did not end as it must: a change was not healed or the digests differ.
var ErrNotHealed = errors.New("not healed")

// errInterrupted says that somebody ended the run, which is no failure of the cluster.
var errInterrupted = errors.New("interrupted")

// stuckAfter is how long a run may go without a completed step before it is given up.
const stuckAfter = 90 * time.Second

// Run plays the script on a cluster and shows it on out. It returns nil only if every change healed and the model's
// digest is the oracle's, where it is judged.
func Run(ctx context.Context, options Options, out io.Writer, terminal bool) error {
	story := newStory()
	screen := newScreen(out, terminal, options.Steps)
	screen.println(fmt.Sprintf("reknit dev: %d trainers, %d steps; logs in %s", options.Trainers, options.Steps,
		filepath.Join(options.Dir, "logs")))
	cluster, err := startCluster(ctx, options, story, screen)
	if cluster != nil {
		defer cluster.close()
	}
	if err != nil {
		return err
	}
	runError := play(ctx, cluster, story, screen)
	cluster.close()
	report := story.report(options)
	if runError == nil && !options.Unjudged {
		screen.println(fmt.Sprintf("training is complete. To judge it, all %d steps are trained once more, undisturbed and in this process: "+
			"the digests must be equal", options.Steps))
		screen.judge(options.Steps)
		report.OracleDigest, runError = oracleDigest(ctx, options, screen.judged)
	}
	if runError != nil && ctx.Err() != nil {
		runError = fmt.Errorf("%w at step %d of %d: all that it started has ended, and the model was not judged", errInterrupted, story.status().step,
			options.Steps)
	}
	return conclude(report, options, screen, runError)
}

// play runs the script and the training to their end.
func play(ctx context.Context, cluster *cluster, story *story, screen *screen) error {
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	go watch(ctx, story, screen, stop)
	director := &director{
		cluster: cluster, story: story, screen: screen, joined: cluster.options.Trainers,
		random: rand.New(rand.NewPCG(cluster.options.Seed, 0)),
	}
	if err := director.play(ctx, cluster.options.actions); err != nil {
		return err
	}
	err := story.wait(ctx, ended)
	screen.healing(story.snapshot())
	return err
}

// watch shows progress, and gives up when nothing moves any more.
func watch(ctx context.Context, story *story, screen *screen, stop context.CancelCauseFunc) {
	ticker := time.NewTicker(100 * time.Millisecond)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		screen.progress(story.status())
		screen.holding(story.holding())
		screen.healing(story.snapshot())
		if quiet := story.quiet(time.Now()); quiet > stuckAfter {
			stop(fmt.Errorf("%w: no step was completed for %s%s", ErrNotHealed, quiet.Round(time.Second), story.why()))
		}
	}
}

// conclude writes the report and the verdict.
func conclude(report Report, options Options, screen *screen, runError error) error {
	if runError == nil {
		runError = report.verdict()
	}
	if runError != nil {
		report.Error = runError.Error()
	}
	if options.Report != "" {
		if err := report.write(options.Report); err != nil {
			return errors.Join(runError, fmt.Errorf("--report: %w", err))
		}
	}
	for _, line := range report.lines() {
		screen.println(line)
	}
	if runError != nil {
		return fmt.Errorf("%w (logs in %s)", runError, filepath.Join(options.Dir, "logs"))
	}
	if options.temporary {
		return os.RemoveAll(options.Dir)
	}
	return nil
}
