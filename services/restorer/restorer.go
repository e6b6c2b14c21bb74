// Package restorer turns a proposed plan into moves: who becomes whom, what comes from whom, and the all-reduce rounds.
package restorer

import (
	"context"

	"github.com/reknit/reknit/services/restorer/machine"
	"github.com/reknit/reknit/shared/service"
)

// Config is the restorer's environment.
type Config struct {
	service.Common
}

// Run restores until ctx ends.
func Run(ctx context.Context, config Config) error {
	bus, err := config.Connect(ctx, "restorer")
	if err != nil {
		return err
	}
	defer bus.Close()
	return service.Run(ctx, service.Options{
		Name: "restorer", Bus: bus, Machine: machine.New(config.Cluster), Address: config.HTTPAddress,
	})
}
