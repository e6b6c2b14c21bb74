package main

import (
	"fmt"
	"time"

	"github.com/caarlos0/env/v11"

	"github.com/reknit/reknit/services/trainer"
	"github.com/reknit/reknit/tests/links"
)

// The scene: so many trainers train, and one more joins.
const (
	trainers = 3
	joiner   = "n4"
	cluster  = "join"
	steps    = 26 // to the end of training
)

// between is each link between two trainers, toHub each between a trainer and the hub.
var (
	between = links.Shape{MegabitsPerSecond: 100, Delay: 10 * time.Millisecond}
	toHub   = links.Shape{MegabitsPerSecond: 1000, Delay: 10 * time.Millisecond}
)

// alwaysPreCopy and neverPreCopy are the least steps of a move that begins while training goes on.
const (
	alwaysPreCopy = "0"
	neverPreCopy  = "1000000"
)

func nodeName(number int) string { return fmt.Sprintf("n%d", number+1) }

// environment is the configuration of a trainer but for where it runs.
func environment(node, text string) map[string]string {
	return map[string]string{
		"REKNIT_TRAINER_NODE":         node,
		"REKNIT_TRAINER_TEXT":         text,
		"REKNIT_TRAINER_STEPS":        fmt.Sprint(steps),
		"REKNIT_TRAINER_WIDTH":        "512",
		"REKNIT_TRAINER_HIDDEN":       "768",
		"REKNIT_TRAINER_BLOCKS":       "4",
		"REKNIT_TRAINER_GLOBAL_BATCH": "8",
		"REKNIT_TRAINER_PIPELINES":    "2",
		"REKNIT_CLUSTER":              cluster,
	}
}

func trainerConfig(node, text string) (config trainer.Config, err error) {
	err = env.ParseWithOptions(&config, env.Options{Environment: environment(node, text)})
	return config, err
}
