// Package restorer turns a proposed plan into moves: who becomes whom, what comes from whom, and the all-reduce rounds.
package restorer

import (
	"context"
	"fmt"

	"github.com/reknit/reknit/services/restorer/machine"
	"github.com/reknit/reknit/shared/service"
)

// Config is the restorer's environment.
type Config struct {
	service.Common
	ShardSize string `env:"REKNIT_SHARD_SIZE" envDefault:"parts" unit:"chain or parts" reason:"parts cuts the largest unit into 128 to 256, whatever the links are; chain takes the largest shards that cost a per cent of the time at most, which takes several times as long to plan"`
}

// Validate says what the tags cannot.
func (c Config) Validate() error {
	_, err := c.settings()
	return err
}

func (c Config) settings() (machine.Settings, error) {
	size, err := machine.ShardSizeOf(c.ShardSize)
	if err != nil {
		return machine.Settings{}, fmt.Errorf("REKNIT_SHARD_SIZE: %w", err)
	}
	return machine.Settings{ShardSize: size}, nil
}

// Run restores until ctx ends.
func Run(ctx context.Context, config Config) error {
	settings, err := config.settings()
	if err != nil {
		return err
	}
	bus, err := config.Connect(ctx, "restorer")
	if err != nil {
		return err
	}
	defer bus.Close()
	return service.Run(ctx, service.Options{
		Name: "restorer", Bus: bus, Machine: machine.New(config.Cluster, settings), Address: config.HTTPAddress,
	})
}
