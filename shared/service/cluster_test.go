package service_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/reknit/reknit/events"
	"github.com/reknit/reknit/shared/bus"
	"github.com/reknit/reknit/shared/service"
)

// trio is three servers in this process, with all streams on each of them.
type trio struct {
	*fixture
	options [3]*server.Options
	servers [3]*server.Server
}

func newTrio(t *testing.T) *trio {
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	t.Cleanup(cancel)
	three := &trio{fixture: &fixture{T: t, ctx: ctx}}
	var routes []*url.URL
	var held [3]net.Listener // keeps the port of each server until it starts
	for i := range three.options {
		var err error
		if held[i], err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
			t.Fatal(err)
		}
		address := held[i].Addr().(*net.TCPAddr)
		routes = append(routes, &url.URL{Scheme: "nats", Host: address.String()})
		three.options[i] = &server.Options{
			ServerName: fmt.Sprint("s", i), Host: "127.0.0.1", Port: server.RANDOM_PORT, JetStream: true, JetStreamMaxStore: 1 << 40,
			StoreDir: t.TempDir(),
			NoSigs:   true, NoLog: true, Cluster: server.ClusterOpts{Name: "trio", Host: "127.0.0.1", Port: address.Port},
		}
	}
	for i := range three.servers {
		three.options[i].Routes = routes
		held[i].Close()
		three.start(i)
	}
	t.Cleanup(func() {
		for _, s := range three.servers {
			s.Shutdown()
		}
	})
	three.url = three.servers[0].ClientURL()
	three.bus = three.connect()
	for err := three.replicate(); err != nil; err = three.replicate() {
		if ctx.Err() != nil {
			t.Fatal(err)
		}
	}
	return three
}

func (three *trio) start(i int) {
	s, err := server.NewServer(three.options[i].Clone())
	if err != nil {
		three.Fatal(err)
	}
	s.Start()
	three.servers[i] = s
}

// replicate has the log and the memories on three servers, as an operator makes them before the services start, and all
// else on one.
func (three *trio) replicate() error {
	ctx, cancel := context.WithTimeout(three.ctx, 2*time.Second)
	defer cancel()
	js := three.bus.JetStream()
	_, noLog := js.CreateOrUpdateStream(ctx, jetstream.StreamConfig{
		Name: events.Lane(cluster, events.EventStream.Name), Subjects: events.EventStream.Subjects(cluster), Replicas: 3,
		Duplicates: events.EventStream.Dedupe,
	})
	_, noMemories := js.CreateOrUpdateKeyValue(ctx, jetstream.KeyValueConfig{Bucket: events.Lane(cluster, events.SnapshotBucket), Replicas: 3})
	return errors.Join(noLog, noMemories, three.bus.Provision(ctx))
}

// followers are the servers that do not lead the log.
func (three *trio) followers() (followers []int) {
	log, err := three.bus.JetStream().Stream(three.ctx, three.bus.Lane(events.EventStream.Name))
	if err != nil {
		three.Fatal(err)
	}
	for i, s := range three.servers {
		if s.Name() != log.CachedInfo().Cluster.Leader {
			followers = append(followers, i)
		}
	}
	return followers
}

// The leader has what was published, and answers repeats that the id is in process, and other fenced events that the
// lease is not as expected.
func TestWhatALeaderCannotStoreYetIsSaidAgainUntilItsFollowersAreBack(t *testing.T) {
	three := newTrio(t)
	followers := three.followers()
	three.url = three.servers[3-followers[0]-followers[1]].ClientURL()
	b := three.connect()
	lease := monitor.First(time.Now(), "a", events.LeaseTaken, "monitor", &events.Lease{Service: "monitor", Instance: "a"})
	ack, err := b.Publish(three.ctx, lease)
	if err != nil {
		t.Fatal(err)
	}
	b.Fence(lease.SubjectName(), ack.Sequence)
	for _, i := range followers {
		three.servers[i].Shutdown()
	}
	said := make(chan error)
	for _, node := range []string{"n1", "n2"} {
		go func() {
			state := &events.NodeState{Node: node, Incarnation: "a"}
			_, err := b.Publish(three.ctx, monitor.First(time.Now(), node, events.NodeLost, node, state))
			said <- err
		}()
	}
	select {
	case err := <-said:
		t.Fatalf("given up, or stored without a quorum: %v", err)
	case <-time.After(5500 * time.Millisecond): // a repeat later
	}
	for _, i := range followers {
		three.start(i)
	}
	for range 2 {
		if err := <-said; err != nil {
			t.Error(err)
		}
	}
}

func TestWhoBeginsToFollowWhileTheLogHasNoLeaderFollowsOnceItHas(t *testing.T) {
	three := newTrio(t)
	followers := three.followers()
	three.url = three.servers[3-followers[0]-followers[1]].ClientURL()
	b := three.connect()
	for _, i := range followers {
		three.servers[i].Shutdown()
	}
	heard, follows := make(chan events.Event, 1), make(chan error, 1)
	go func() {
		_, err := b.Follow(three.ctx, events.EventStream, events.EventStream.Subjects(cluster), bus.All,
			func(event events.Event) { heard <- event })
		follows <- err
	}()
	select {
	case err := <-follows:
		t.Fatalf("given up, or followed without a quorum: %v", err)
	case <-time.After(5500 * time.Millisecond): // a request of its, and a repeat
	}
	for _, i := range followers {
		three.start(i)
	}
	if err := <-follows; err != nil {
		t.Fatal(err)
	}
	state := &events.NodeState{Node: "n1", Incarnation: "a"}
	said, err := b.Publish(three.ctx, monitor.First(time.Now(), "n1", events.NodeLost, "n1", state))
	if err != nil {
		t.Fatal(err)
	}
	if event := <-heard; event.Sequence != said.Sequence {
		t.Errorf("heard %d, expected %d", event.Sequence, said.Sequence)
	}
}

// mute handles an event in its own time and says nothing.
type mute struct{ clerk }

func (m *mute) Handle(event events.Event) ([]events.Event, error) {
	_, err := m.clerk.Handle(event)
	return nil, err
}

func TestOnThreeServersAnInstanceThatWasPausedCannotWriteItsMemory(t *testing.T) {
	service.SetStandstill(t, 100*time.Millisecond)
	three := newTrio(t)
	leases, address := three.said(events.LeaseTaken), freeAddress(t)
	paused := &mute{clerk{waits: make(chan struct{})}}
	old := three.run(service.Options{Machine: paused, Address: address})
	three.untilReadySays(address, "ok")
	three.expect(leases, "negotiator")
	three.lose("n1")
	three.untilReadySays(address, "computing since")
	three.run(service.Options{Machine: &mute{}})
	three.expect(leases, "negotiator")
	three.until("the successor has signed the memory", func() bool { return three.writes() > 1 })
	close(paused.waits)
	if err := old.end(); !errors.Is(err, bus.ErrFenced) {
		t.Errorf("expected ErrFenced, got %v", err)
	}
}

// writes returns how often memories were written.
func (f *fixture) writes() uint64 {
	stream, err := f.bus.JetStream().Stream(f.ctx, "KV_"+f.bus.Lane(events.SnapshotBucket))
	if err != nil {
		f.Fatal(err)
	}
	return stream.CachedInfo().State.LastSeq
}

// memory returns what is stored of the negotiator.
func (f *fixture) memory() ([]byte, error) {
	bucket, err := f.bus.JetStream().KeyValue(f.ctx, f.bus.Lane(events.SnapshotBucket))
	if err != nil {
		return nil, err
	}
	entry, err := bucket.Get(f.ctx, cluster+".negotiator")
	if err != nil {
		return nil, err
	}
	return entry.Value(), nil
}
