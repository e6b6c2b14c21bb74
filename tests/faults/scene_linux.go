package main

import (
	"context"
	"fmt"
	"net/netip"
	"net/rpc"
	"path/filepath"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/reknit/reknit/services/agent/shards"
	"github.com/reknit/reknit/tests/links"
	"github.com/reknit/reknit/tests/nodes"
)

// The setting of every fault. The links are slow enough that it is they, and not this machine's processors, that bound
// the transfer.
const (
	sources   = 3
	storePort = 4222
)

var (
	whole = links.Shape{MegabitsPerSecond: 100, Delay: 15 * time.Millisecond}
	tenth = links.Shape{MegabitsPerSecond: 10, Delay: 15 * time.Millisecond}
)

// scene is a cluster: some sources, and the destination that they are joined to.
type scene struct {
	destination *nodes.Process
	sources     []*nodes.Process
	links       []*links.Link // of each source to the destination
	parts       []shards.Part
	fetching    *rpc.Call // of the destination
	fetched     Fetched
	apart       int64 // bytes over the links of earlier transfers, and zeros that warmed connections
}

// build starts the processes and joins them. The returned scene has to be ended also after an error.
func build() (*scene, error) {
	s := &scene{}
	var err error
	if s.destination, err = nodes.Start("destination"); err != nil {
		return s, err
	}
	for i := range sources {
		source, err := nodes.Start(bucket(i))
		if err != nil {
			return s, err
		}
		s.sources = append(s.sources, source)
		link, err := links.Join(whole,
			links.End{Namespace: s.destination.Namespace, Address: netip.MustParsePrefix(address(i, 1) + "/30")},
			links.End{Namespace: source.Namespace, Address: netip.MustParsePrefix(address(i, 2) + "/30")})
		if err != nil {
			return s, err
		}
		s.links = append(s.links, link)
	}
	return s, nil
}

func bucket(source int) string { return fmt.Sprint("source-", source) }

func address(source, host int) string { return fmt.Sprintf("10.0.%d.%d", source, host) }

// serve has every source serve a store, the first one the store that a fault asks for, and give the state from it.
func (s *scene) serve(first Store) error {
	parts := make([][]shards.Part, sources)
	var holds errgroup.Group
	for i, source := range s.sources {
		store := Store{}
		if i == 0 {
			store = first
		}
		store.Bucket, store.Dir = bucket(i), filepath.Join(filesDir, bucket(i))
		holds.Go(func() error {
			if err := source.Call("Node.Serve", store, nil); err != nil {
				return err
			}
			return source.Call("Node.Hold", state, &parts[i])
		})
	}
	err := holds.Wait()
	s.parts = parts[sources-1] // all tell the same
	return err
}

// job is the transfer of the state as agents have it: each part has a giver, and the other sources are its spares.
func (s *scene) job(only bool) Job {
	job := Job{Bytes: state.Bytes, Parts: s.parts}
	for i := range sources {
		url := fmt.Sprintf("nats://%s:%d", address(i, 2), storePort)
		job.Sources = append(job.Sources, shards.Source{Name: bucket(i), URL: url, Bucket: bucket(i)})
	}
	for i := range job.Parts {
		part, giver := &job.Parts[i], i*sources/len(job.Parts)
		if only {
			giver = 0
		}
		part.Sources, part.Spares = nil, nil
		for other := range sources {
			if other == giver {
				part.Sources = append(part.Sources, bucket(other))
			} else {
				part.Spares = append(part.Spares, bucket(other))
			}
		}
	}
	return job
}

// fetch has the destination begin a job.
func (s *scene) fetch(job Job) {
	s.fetched = Fetched{}
	s.apart += sources * warmed
	s.fetching = s.destination.Go("Node.Fetch", job, &s.fetched, make(chan *rpc.Call, 1))
}

// await returns how far a transfer is when so many bytes have come.
func (s *scene) await(ctx context.Context, bytes int64) (shards.Progress, error) {
	for {
		var progress shards.Progress
		if err := s.destination.Call("Node.Progress", struct{}{}, &progress); err != nil {
			return progress, err
		}
		if came(progress) >= bytes {
			return progress, nil
		}
		select {
		case <-ctx.Done():
			return progress, ctx.Err()
		case <-time.After(lookEvery):
		}
	}
}

// end ends all processes, links and namespaces.
func (s *scene) end() error {
	var ends errgroup.Group
	for _, p := range append(s.sources, s.destination) {
		if p != nil {
			ends.Go(p.End)
		}
	}
	err := ends.Wait()
	for _, link := range s.links {
		link.Close()
	}
	return err
}

// stop makes every call to a node fail, and the nodes end.
func (s *scene) stop() {
	for _, p := range append(s.sources, s.destination) {
		_ = p.Client.Close() // it may be closed already
	}
}
