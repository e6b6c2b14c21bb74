// Package planner answers each plan request with the best plan it finds and every candidate it weighed.
package planner

import (
	"context"
	"fmt"
	"time"

	"github.com/reknit/reknit/services/planner/machine"
	"github.com/reknit/reknit/shared/service"
)

// Config is the planner's environment.
type Config struct {
	service.Common
	MinReplicas int           `env:"REKNIT_MIN_REPLICAS" envDefault:"2" unit:"nodes" reason:"holders that every layer should have: with one, the next failure may lose a layer for good"`
	SwitchTime  time.Duration `env:"REKNIT_SWITCH_TIME" envDefault:"50ms" unit:"duration" reason:"a switch of plans that moves nothing; weighed against the gain of a better plan"`
}

// Run plans until ctx ends.
func Run(ctx context.Context, config Config) error {
	if config.MinReplicas < 1 {
		return fmt.Errorf("REKNIT_MIN_REPLICAS: expected at least 1, got %d", config.MinReplicas)
	}
	if config.SwitchTime < 0 {
		return fmt.Errorf("REKNIT_SWITCH_TIME: expected at least 0, got %s", config.SwitchTime)
	}
	bus, err := config.Connect(ctx, "planner")
	if err != nil {
		return err
	}
	defer bus.Close()
	settings := machine.Settings{Cluster: config.Cluster, MinReplicas: config.MinReplicas, SwitchSeconds: config.SwitchTime.Seconds()}
	return service.Run(ctx, service.Options{Name: "planner", Bus: bus, Machine: machine.New(settings), Address: config.HTTPAddress})
}
