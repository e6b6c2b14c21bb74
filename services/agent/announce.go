package agent

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/reknit/reknit/events"
	"github.com/reknit/reknit/shared/bus"
)

const announceTimeout = 5 * time.Second // for the server to take the first heartbeat

// Announce sends heartbeats of events.PhaseStarting in the name of a node whose trainer has not made its state yet, until ctx ends.
// It takes from the config NATSURL, NATSKit, Cluster, Node and PulseEvery. It calls announced once the first is with the server.
// Nothing is kept of them: the log tells of a node from its request for a place on.
func Announce(ctx context.Context, config Config, announced func()) error {
	if err := config.complete(); err != nil {
		return err
	}
	connection, err := bus.Connect(ctx, bus.Config{
		URL: config.NATSURL, Name: config.Node, Cluster: config.Cluster, Kit: config.NATSKit,
	})
	if err != nil {
		return err
	}
	defer connection.Close()
	if key := connection.Identity().Key; key != "" && key != config.Node {
		return fmt.Errorf("REKNIT_NATS_KIT: expected that of the node %s, got the one of %s", config.Node, key)
	}
	ticker := time.NewTicker(config.PulseEvery)
	defer ticker.Stop()
	pulse := events.Pulse{Node: config.Node, Incarnation: newProcess(), Phase: events.PhaseStarting}
	for {
		pulse.Number++
		data, err := json.Marshal(pulse)
		if err == nil {
			err = connection.Conn().Publish(events.PulseSubject(config.Cluster, config.Node), data)
		}
		if pulse.Number == 1 {
			if err = cmp.Or(err, connection.Conn().FlushTimeout(announceTimeout)); err != nil {
				return err
			}
			announced()
		}
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C: // a server that is away for a while is told when it is back
		}
	}
}
