package connect

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/reknit/reknit/events"
	"github.com/reknit/reknit/services/reknit/permission"
	"github.com/reknit/reknit/services/reknit/processes"
	"github.com/reknit/reknit/services/reknit/tell"
	"github.com/reknit/reknit/shared/bus"
)

const (
	askTimeout = time.Second // for a service to answer that it works
	// Listening is for how long WhoLives listens to heartbeats: two periods, and what a busy node is late by.
	Listening = 1200 * time.Millisecond
)

// Living is who lives of a cluster: the services that act for it, and the nodes whose heartbeats are heard.
type Living struct{ Services, Nodes []string }

// Nobody reports that no one lives.
func (l Living) Nobody() bool { return len(l.Services)+len(l.Nodes) == 0 }

func (l Living) String() string {
	var who []string
	if len(l.Services) > 0 {
		who = append(who, strings.Join(l.Services, ", "))
	}
	if len(l.Nodes) > 0 {
		who = append(who, tell.Count(len(l.Nodes), "node", "nodes"))
	}
	if l.Nobody() {
		return "nobody lives there"
	}
	return strings.Join(who, " and ")
}

// WhoLives asks the services of clusters, and where it is not enough to know of those listens to heartbeats. The speaker is who asks on a
// secured installation, and else empty.
func WhoLives(conn *nats.Conn, speaker string, clusters []string, enough func(map[string]*Living) bool) (map[string]*Living, error) {
	all := map[string]*Living{}
	var mutex sync.Mutex
	var asked sync.WaitGroup
	for _, cluster := range clusters {
		living := &Living{}
		all[cluster] = living
		for _, service := range processes.Services {
			asked.Go(func() {
				if _, err := conn.Request(events.LeaseSubject(cluster, service, speaker), nil, askTimeout); !errors.Is(err, nats.ErrNoResponders) {
					mutex.Lock()
					defer mutex.Unlock()
					living.Services = append(living.Services, service)
				}
			})
		}
	}
	asked.Wait()
	if enough(all) {
		return all, nil
	}
	return all, hear(conn, all)
}

// hear adds the nodes whose heartbeats are heard while it listens.
func hear(conn *nats.Conn, all map[string]*Living) error {
	var mutex sync.Mutex
	heard := map[string]map[string]bool{}
	for cluster := range all {
		heard[cluster] = map[string]bool{}
		beats, err := conn.Subscribe(events.PulseSubject(cluster, "*"), func(beat *nats.Msg) {
			mutex.Lock()
			defer mutex.Unlock()
			heard[cluster][beat.Subject[strings.LastIndexByte(beat.Subject, '.')+1:]] = true
		})
		if err != nil {
			return err
		}
		defer beats.Unsubscribe()
	}
	time.Sleep(Listening)
	mutex.Lock()
	defer mutex.Unlock()
	for cluster, nodes := range heard {
		all[cluster].Nodes = slices.Sorted(maps.Keys(nodes))
	}
	return nil
}

// Clusters lists those of a server. Each has a log of its own.
func Clusters(ctx context.Context, js jetstream.JetStream) (clusters []string, err error) {
	names := js.StreamNames(ctx)
	for name := range names.Name() {
		if cluster, isLog := strings.CutPrefix(name, events.Lane("", events.EventStream.Name)); isLog {
			clusters = append(clusters, cluster)
		}
	}
	slices.Sort(clusters)
	return clusters, names.Err()
}

// there fails where a server has no cluster of a name, or does not tell who has a kit. Without a kit a server that does not
// tell is believed to have it.
func (s settings) there(ctx context.Context, js jetstream.JetStream, name string) error {
	asked, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	_, err := js.Stream(asked, events.Lane(name, events.EventStream.Name))
	switch {
	case errors.Is(err, jetstream.ErrStreamNotFound):
		return Missing(ctx, js, name)
	case s.kit != "" && errors.Is(err, context.DeadlineExceeded):
		return fmt.Errorf("cluster %s: nobody answers who asks for its log: either it is not that of the kit, whose environment has the right "+
			"REKNIT_CLUSTER, or the servers have no leader", name)
	}
	return nil
}

// Missing says that a server has no cluster of a name, and which it has where one may ask.
func Missing(ctx context.Context, js jetstream.JetStream, name string) error {
	all, err := Clusters(ctx, js)
	there := "there are: " + strings.Join(all, ", ")
	switch {
	case err != nil:
		there = "nor may this user ask which there are"
	case len(all) == 0:
		there = "there is none yet: its services make it (reknit up --cluster " + name + ")"
	}
	return tell.UsageError{Err: fmt.Errorf("there is no cluster %s on this installation; %s", name, there)}
}

// onlyCluster returns the cluster of a server that is meant where none is named: the only one, or the only one where somebody
// lives. One that was tried once, or is done, is in nobody's way.
func (s settings) onlyCluster(ctx context.Context, conn *nats.Conn, js jetstream.JetStream) (string, error) {
	clusters, err := Clusters(ctx, js)
	switch {
	case err != nil:
		return "", fmt.Errorf("--cluster: expected its name, for %s does not tell which there are: %w", s.url, err)
	case len(clusters) == 0:
		return "", tell.UsageError{Err: fmt.Errorf("--cluster: expected one of those at %s: there is none yet", s.url)}
	case len(clusters) == 1:
		return clusters[0], nil
	}
	living := func(all map[string]*Living) (names []string) {
		return slices.DeleteFunc(slices.Clone(clusters), func(name string) bool { return all[name].Nobody() })
	}
	all, err := WhoLives(conn, "", clusters, func(all map[string]*Living) bool { return len(living(all)) == 1 })
	if err != nil {
		return "", err
	}
	if alive := living(all); len(alive) == 1 {
		return alive[0], nil
	}
	said := make([]string, len(clusters))
	for i, name := range clusters {
		said[i] = fmt.Sprintf("%s (%s)", name, all[name])
	}
	return "", tell.UsageError{Err: fmt.Errorf("--cluster: expected one of those at %s: %s", s.url, strings.Join(said, "; "))}
}

// MayListen refuses the kit of a node: who asks with it would take everybody for silent.
func MayListen(b *bus.Bus) error {
	if who := b.Identity(); who.API != "" && who.Key != who.Speakers[permission.User] {
		return tell.UsageError{Err: errors.New("REKNIT_NATS_KIT: a node hears no heartbeats of others, and asks no services: " +
			"expected the kit of a user (services/user)")}
	}
	return nil
}
