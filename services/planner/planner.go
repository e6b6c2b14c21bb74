// Package planner answers each plan request with the best plan it finds and every candidate it weighed.
package planner

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/reknit/reknit/events"
	"github.com/reknit/reknit/services/planner/internal/ahead"
	"github.com/reknit/reknit/services/planner/machine"
	"github.com/reknit/reknit/services/planner/policy"
	"github.com/reknit/reknit/shared/service"
)

// Config is the planner's environment.
type Config struct {
	service.Common
	Policy  string   `env:"REKNIT_POLICY" envDefault:"adaptive" unit:"name" reason:"weighs rerouting against planning anew; the others (repipeline, reroute) are each alone"`
	Plugins []string `env:"REKNIT_POLICY_PLUGINS" unit:"names, with commas" reason:"responders on reknit.policy.<cluster>.<name> that are asked for a plan too; none by default"`
	// PluginDeadline is at most 3 s, which keeps a request from being delivered again while plug-ins are waited for: after five seconds.
	PluginDeadline time.Duration `env:"REKNIT_POLICY_PLUGIN_DEADLINE" envDefault:"200ms" unit:"duration" is:"over=0,max=3s" reason:"what a plug-in may cost: a plan is waited for while training stands still"`
	MinReplicas    int           `env:"REKNIT_MIN_REPLICAS" envDefault:"2" unit:"nodes" is:"min=1" reason:"holders that every layer should have: with one, the next failure may lose a layer for good"`
	SwitchTime     time.Duration `env:"REKNIT_SWITCH_TIME" envDefault:"50ms" unit:"duration" reason:"what a change that moves nothing costs, as a reroute; measured after the first one"`
	RestartTime    time.Duration `env:"REKNIT_RESTART_TIME" envDefault:"50ms" unit:"duration" reason:"what a change that moves state costs besides its transfer, such as new processes or process groups; measured after the first one"`
	Slowdown       float64       `env:"REKNIT_SLOWDOWN" envDefault:"1.05" unit:"times" is:"min=1" reason:"how many times as long a step may take for a node that joins a data-parallel job over slow links; beyond, the node waits as a spare"`
}

// Validate says what the tags cannot.
func (c Config) Validate() error {
	_, err := c.settings()
	return errors.Join(err, plugins{names: c.Plugins}.validate())
}

func (c Config) settings() (machine.Settings, error) {
	named, err := policy.Named(c.Policy)
	if err != nil {
		return machine.Settings{}, fmt.Errorf("REKNIT_POLICY: %w", err)
	}
	return machine.Settings{
		Cluster: c.Cluster, Policy: named, MinReplicas: c.MinReplicas,
		SwitchSeconds: c.SwitchTime.Seconds(), RestartSeconds: c.RestartTime.Seconds(), Slowdown: c.Slowdown,
	}, nil
}

// Run plans until ctx ends.
func Run(ctx context.Context, config Config) error {
	settings, err := config.settings()
	if err != nil {
		return err
	}
	asked := plugins{cluster: config.Cluster, names: config.Plugins, deadline: config.PluginDeadline}
	bus, err := config.Connect(ctx, "planner")
	if err != nil {
		return err
	}
	defer bus.Close()
	asked.conn = bus.Conn()
	ctx, cancel := context.WithCancel(ctx)
	cache, searches := &ahead.Cache{}, &ahead.Searches{}
	settings.Find = searches.Find
	forerunner, acts := ahead.New(settings, cache), make(chan func(time.Time) []events.Event)
	var background sync.WaitGroup
	background.Go(func() {
		select {
		case acts <- func(time.Time) []events.Event { return nil }: // a copy that stands by plans nothing ahead
			forerunner.Run(ctx, bus)
		case <-ctx.Done():
		}
	})
	defer background.Wait()
	defer cancel()
	return service.Run(ctx, service.Options{
		Name: "planner", Bus: bus, Machine: asking{machine.New(settings), cache, forerunner, asked}, Address: config.HTTPAddress,
		Inputs: acts,
	})
}
