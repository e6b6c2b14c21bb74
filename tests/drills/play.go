package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"github.com/reknit/reknit/events"
	"github.com/reknit/reknit/tests/invariants"
	"github.com/reknit/reknit/tests/observer"
)

// The model is small, so that steps are short and the undisturbed run is soon done. Training ends with the drill and
// not by itself.
const (
	compareEvery  = 50 // steps
	warmSteps     = 100
	snapshotEvery = 40
	endless       = 1_000_000
)

// waitLimit is far beyond what anything takes that is waited for; what takes longer is held for ever.
const waitLimit = 90 * time.Second

func (d drill) settings(text, directory string) map[string]string {
	settings := map[string]string{
		"REKNIT_TRAINER_TEXT": text, "REKNIT_TRAINER_STEPS": strconv.Itoa(endless),
		"REKNIT_TRAINER_WIDTH": "8", "REKNIT_TRAINER_HIDDEN": "16", "REKNIT_TRAINER_BLOCKS": "4",
		"REKNIT_TRAINER_GLOBAL_BATCH": "6", "REKNIT_TRAINER_COMPARE_EVERY": strconv.Itoa(compareEvery),
		"REKNIT_TRAINER_PIPELINES":    strconv.Itoa(d.pipelines),
		"REKNIT_TRAINER_LEAST_STAGES": strconv.Itoa(d.stages), "REKNIT_TRAINER_MOST_STAGES": strconv.Itoa(d.stages),
	}
	if d.inMemory {
		settings["REKNIT_SNAPSHOT_MEMORY_EVERY"] = strconv.Itoa(snapshotEvery)
	}
	if d.snapshots {
		settings["REKNIT_SNAPSHOT_BUCKET"] = "file://" + filepath.Join(directory, "bucket") +
			"?create_dir=true&no_tmp_dir=true"
		settings["REKNIT_SNAPSHOT_REMOTE_EVERY"] = strconv.Itoa(snapshotEvery)
	}
	return settings
}

// outcome is how a drill ended.
type outcome struct {
	verdict observer.Verdict
	scene   observer.Scene
	healed  time.Duration // from the end of the failure until all train
	elapsed time.Duration

	heldAtStart int // how often the cluster waited for its first nodes: on a slow machine they come one by one
}

func (o outcome) String() string {
	return fmt.Sprintf("all train after %.1f s; %d steps, %d plans, %d events; %.0f s",
		o.healed.Seconds(), o.scene.Compared(), o.verdict.Plans, o.verdict.Events, o.elapsed.Seconds())
}

// play runs a drill and judges it. The directory keeps the log and what the processes logged.
func (d drill) play(ctx context.Context, reknit, text, directory string) (result outcome, err error) {
	began := time.Now()
	c, err := newCluster(ctx, reknit, directory, d.trainers)
	defer c.close()
	if err != nil {
		return result, err
	}
	c.settings, c.delays = d.settings(text, directory), d.delays
	if err = d.serve(c, directory); err == nil {
		err = d.run(ctx, c, &result)
	}
	result.elapsed = time.Since(began)
	written := os.WriteFile(filepath.Join(directory, "log.jsonl"), c.observer.Log(), 0o644)
	return result, errors.Join(err, c.losses(), written)
}

// serve starts the S3 server that trainers write snapshots to, if there is one.
func (d drill) serve(c *cluster, directory string) error {
	if d.storeDies == 0 {
		return nil
	}
	port, err := freePort()
	if err != nil {
		return err
	}
	c.snapshots = &store{directory: directory, address: fmt.Sprint("127.0.0.1:", port)}
	maps.Copy(c.settings, c.snapshots.settings())
	return c.snapshots.start(d.storeDies)
}

// run has the cluster train, strikes, waits until all train again, and judges what they have trained by then.
func (d drill) run(ctx context.Context, c *cluster, result *outcome) error {
	for i := range d.trainers {
		if err := c.join(fmt.Sprint("n", i+1), d.restarts); err != nil {
			return err
		}
	}
	if err := c.observer.Wait(ctx, waitLimit, "all trainers to train", func(s observer.Scene) bool {
		return len(s.Plan.Nodes) == d.trainers && s.Trains() && s.Steps > warmSteps
	}); err != nil {
		return err
	}
	result.heldAtStart = c.observer.Scene().Heard[events.ClusterHeld]
	if err := d.strike(ctx, c); err != nil {
		return err
	}
	over, struck := time.Now(), c.observer.Scene().Plan.Generation
	limit := waitLimit + time.Duration(d.backOff*float64(time.Second))
	expected := fmt.Sprintf("a plan in which %d trainers train", d.members)
	if err := c.observer.Wait(ctx, limit, expected, func(s observer.Scene) bool {
		return (s.Plan.Generation > struck || d.spared) && len(s.Plan.Nodes) == d.members && s.Trains()
	}); err != nil {
		return fmt.Errorf("%w; held: %q", err, c.observer.Scene().Held)
	}
	result.healed = time.Since(over)
	return d.judge(ctx, c, result)
}

// judge waits until all have told digests of one step, and compares them with the oracle's.
func (d drill) judge(ctx context.Context, c *cluster, result *outcome) error {
	healed := c.observer.Scene().Steps
	if err := c.observer.Wait(ctx, waitLimit, "the digests of all", func(s observer.Scene) bool {
		if s.Compared() <= healed {
			return false
		}
		result.scene = s.Clone()
		result.scene.Heard[events.ClusterHeld] -= result.heldAtStart
		return true
	}); err != nil {
		return err
	}
	config, err := c.trainer()
	if err != nil {
		return err
	}
	if result.verdict, err = c.observer.Judge(config, result.scene); err != nil {
		return err
	}
	itself := func(violation invariants.Violation) bool { return violation.Invariant == d.violates }
	result.verdict.Violations = slices.DeleteFunc(result.verdict.Violations, itself)
	if d.shown != nil {
		err = d.shown(result.scene)
	}
	return errors.Join(err, result.verdict.Err())
}
