package nodes

import (
	"context"
	"errors"
	"time"

	"github.com/reknit/reknit/services/agent/shards"
)

// Transfer is one that runs, and has nothing to fetch yet.
type Transfer struct {
	*shards.Transfer
	ended chan error
}

// connectPause is how often it is looked whether all sources are there.
const connectPause = 5 * time.Millisecond

// Connect returns when all sources are connected: a node that joins connects while the others train.
func Connect(ctx context.Context, sources []shards.Source) (*Transfer, error) {
	transfer, err := shards.NewTransfer(sources)
	if err != nil {
		return nil, err
	}
	t := &Transfer{transfer, make(chan error, 1)}
	go func() { t.ended <- transfer.Run(ctx) }()
	for !t.connected() {
		select {
		case err := <-t.ended:
			return nil, errors.Join(errors.New("ended before all sources were connected"), err)
		case <-time.After(connectPause):
		}
	}
	return t, nil
}

func (t *Transfer) connected() bool {
	for _, source := range t.Progress().Sources {
		if source.State == shards.Away {
			return false
		}
	}
	return true
}

// Fetch brings parts of a state, and ends the transfer.
func (t *Transfer) Fetch(state shards.Layer) error {
	if err := t.Add(state); err != nil {
		return err
	}
	t.Seal()
	return <-t.ended
}
