package main

import (
	"context"
	"fmt"
	"io"
	"maps"
	"slices"

	"github.com/nats-io/nats.go/jetstream"
)

// fill is how full a store was.
type fill struct{ most, last, bound int64 }

// stores are those of the hub, by the name of their stream, and what the agents give.
type stores map[string]fill

const givenStores = "each agent's store"

// see notes how full a store is.
func (s stores) see(name string, held, bound int64) {
	s[name] = fill{max(s[name].most, held), held, bound}
}

// look looks at all stores of the hub.
func (s stores) look(ctx context.Context, js jetstream.JetStream) error {
	streams := js.ListStreams(ctx)
	for stream := range streams.Info() {
		s.see(stream.Config.Name, int64(stream.State.Bytes), stream.Config.MaxBytes)
	}
	return streams.Err()
}

func (s stores) print(out io.Writer) {
	fmt.Fprintf(out, "\n| store | most | at the end | bound |\n| --- | --- | --- | --- |\n")
	for _, name := range slices.Sorted(maps.Keys(s)) {
		fill := s[name]
		fmt.Fprintf(out, "| %s | %s | %s | %s |\n", name, size(fill.most), size(fill.last), size(fill.bound))
	}
}

// size writes bytes for people.
func size(bytes int64) string {
	if bytes < 1<<30 {
		return fmt.Sprintf("%.1f MiB", float64(bytes)/(1<<20))
	}
	return fmt.Sprintf("%.2f GiB", float64(bytes)/(1<<30))
}
