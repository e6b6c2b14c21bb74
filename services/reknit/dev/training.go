package dev

import (
	"context"
	"fmt"
	"runtime"
	"strconv"
	"sync"

	"github.com/reknit/reknit/services/trainer"
	"github.com/reknit/reknit/services/trainer/oracle"
	"github.com/reknit/reknit/shared/service"
)

// trainerEnvironment is the configuration of a trainer process.
func (o Options) trainerEnvironment(name string) map[string]string {
	return map[string]string{
		"REKNIT_TRAINER_NODE":                 name,
		"REKNIT_TRAINER_TEXT":                 o.Text,
		"REKNIT_TRAINER_STEPS":                strconv.FormatUint(o.Steps, 10),
		"REKNIT_TRAINER_SEED":                 strconv.FormatUint(o.Seed, 10),
		"REKNIT_TRAINER_PIPELINES":            strconv.Itoa(o.Pipelines),
		"REKNIT_TRAINER_OPTIMIZER_PARTITIONS": strconv.Itoa(o.OptimizerPartitions),
	}
}

// trainerConfig is that configuration as a trainer reads it.
func (o Options) trainerConfig(name string) (trainer.Config, error) {
	var config trainer.Config
	err := service.Read(&config, o.trainerEnvironment(name))
	return config, err
}

// oracleDigest trains the same model in this process, undisturbed, and returns its digest. Samples of a step are
// shared among the cores, which the sums allow. Each completed step is told.
func oracleDigest(ctx context.Context, options Options, completed func(steps uint64)) (string, error) {
	config, err := options.trainerConfig("oracle")
	if err != nil {
		return "", err
	}
	training, samples, err := config.Training()
	if err != nil {
		return "", err
	}
	partitions := training.Shape.Partitions
	training.Shape.Partitions = 0 // layers are trained whole
	layers, err := oracle.NewLayers(training.Shape, training.Seed)
	if err != nil {
		return "", err
	}
	workers := make([]*oracle.Worker, runtime.NumCPU())
	for i := range workers {
		workers[i] = oracle.NewWorker(training.Shape)
	}
	sums := oracle.NewSums(training.Shape)
	for step := range training.Steps {
		if ctx.Err() != nil {
			return "", context.Cause(ctx)
		}
		sums.Reset()
		errs := make([]error, len(workers))
		var shares sync.WaitGroup
		for i, worker := range workers {
			shares.Go(func() {
				worker.Sums.Reset()
				first := step*training.GlobalBatch + i*training.GlobalBatch/len(workers)
				end := step*training.GlobalBatch + (i+1)*training.GlobalBatch/len(workers)
				errs[i] = worker.AccumulateRange(layers, samples, first, end)
			})
		}
		shares.Wait()
		for i, worker := range workers {
			if errs[i] == nil {
				errs[i] = sums.Merge(worker.Sums)
			}
			if errs[i] != nil {
				return "", fmt.Errorf("oracle, step %d: %w", step, errs[i])
			}
		}
		if layers, err = oracle.Update(layers, sums, training.Adam, training.GlobalBatch); err != nil {
			return "", fmt.Errorf("oracle, step %d: %w", step, err)
		}
		completed(uint64(step) + 1)
	}
	return oracle.Digest(layers, partitions), nil
}
