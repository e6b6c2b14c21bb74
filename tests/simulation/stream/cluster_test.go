package stream_test

import (
	"context"
	"fmt"
	"net"
	"net/url"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/reknit/reknit/events"
	"github.com/reknit/reknit/shared/bus"
	"github.com/reknit/reknit/tests/simulation/stream"
)

// trio is three servers of one cluster, each of which can be stopped and started again.
type trio struct {
	*testing.T
	options [3]*server.Options
	servers [3]*server.Server
}

func startTrio(t *testing.T) *trio {
	c := &trio{T: t}
	var routes []*url.URL
	for i := range c.options {
		port := freePort(t)
		routes = append(routes, &url.URL{Scheme: "nats", Host: fmt.Sprintf("127.0.0.1:%d", port)})
		c.options[i] = &server.Options{
			ServerName: fmt.Sprint("s", i), Host: "127.0.0.1", Port: freePort(t), JetStream: true, JetStreamMaxStore: 1 << 40,
			StoreDir: t.TempDir(),
			NoSigs:   true, NoLog: true, Cluster: server.ClusterOpts{Name: "c", Host: "127.0.0.1", Port: port},
		}
	}
	for i := range c.options {
		c.options[i].Routes = routes
		c.start(i)
	}
	t.Cleanup(func() {
		for _, s := range c.servers {
			s.Shutdown()
			s.WaitForShutdown()
		}
	})
	return c
}

func freePort(t *testing.T) int {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	return listener.Addr().(*net.TCPAddr).Port
}

func (c *trio) start(i int) {
	s, err := server.NewServer(c.options[i].Clone())
	if err != nil {
		c.Fatal(err)
	}
	c.servers[i] = s
	s.Start()
	if !s.ReadyForConnections(10 * time.Second) {
		c.Fatal("a server is not ready")
	}
}

// others returns the servers that are not the one of that name.
func (c *trio) others(name string) (found []int) {
	for i, s := range c.servers {
		if s.Name() != name {
			found = append(found, i)
		}
	}
	return found
}

func (c *trio) url(name string) string {
	for _, s := range c.servers {
		if s.Name() == name {
			return s.ClientURL()
		}
	}
	c.Fatalf("no server is called %q", name)
	return ""
}

// A leader that has lost its followers takes what is published and cannot acknowledge it. Its refusals of repeats and
// of what expects the same message are those of the model, and so is what is stored once the followers are back.
func TestALeaderWithoutItsFollowersAnswersAsTheModelDoes(t *testing.T) {
	t.Parallel()
	c := startTrio(t)
	p := waitForPair(t, c)
	log, model := p.model.Events, p.model
	lease := &stream.Expect{Subject: "fact.lease", Sequence: 1}
	p.publish(log, "fact.lease", "lease", nil, 5)
	p.publish(log, "fact.0", "id0", lease, 5)
	p.publish(log, "fact.0", "id0", &stream.Expect{Subject: "fact.lease", Sequence: 9}, 5) // the id is checked first

	leader := p.log().CachedInfo().Cluster.Leader
	p.connect(c.url(leader))
	for _, i := range c.others(leader) {
		c.servers[i].Shutdown()
		c.servers[i].WaitForShutdown()
	}
	model.Become(stream.Isolated)
	p.publish(log, "fact.1", "id1", lease, 5)
	p.publish(log, "fact.1", "id1", lease, 5)    // the same again: in process
	p.publish(log, "fact.2", "id2", lease, 5)    // another that expects the lease
	p.publish(log, "fact.3", "id3", nil, 5)      // another that expects nothing
	p.publish(log, "fact.lease", "next", nil, 5) // another instance takes the lease
	p.publish(log, "fact.4", "id4", &stream.Expect{Subject: "fact.lease", Sequence: 1}, 5)

	for _, i := range c.others(leader) {
		c.start(i)
	}
	model.Heal()
	p.eventually("the followers are back", func(ctx context.Context) bool {
		real, err := p.js.Stream(ctx, facts.Name)
		if err != nil {
			return false
		}
		return err == nil && real.CachedInfo().State.LastSeq >= 5
	})
	p.publish(log, "fact.4", "id4", lease, 5) // fenced by what waited
	p.publish(log, "fact.1", "id1", nil, 5)   // stored meanwhile
	p.publish(log, "fact.2", "id2", nil, 5)   // refused, so it is new
	for sequence := range uint64(7) {
		p.get(sequence + 1)
	}
}

// What shared/bus does of it: it says again what is not acknowledged in five seconds, and believes neither that the
// same id is in process nor that the lease is another's while its leader says otherwise.
func TestThePublisherOutlivesALeaderWithoutFollowers(t *testing.T) {
	t.Parallel()
	c := startTrio(t)
	p := waitForPair(t, c)
	config := jetstream.StreamConfig{
		Name: events.Lane("c", events.EventStream.Name), Subjects: events.EventStream.Subjects("c"), Replicas: 3, Duplicates: never,
	}
	held, err := p.js.CreateStream(p.ctx, config)
	if err != nil {
		t.Fatal(err)
	}
	leader := held.CachedInfo().Cluster.Leader
	b, err := bus.Connect(p.ctx, bus.Config{URL: c.url(leader), Name: "test", Cluster: "c"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.Conn().Close)
	monitor := events.Speaker{Source: "/monitor", Cluster: "c"}
	lease := monitor.First(time.Now(), "1", events.LeaseTaken, "monitor", &events.Lease{Service: "monitor", Instance: "1"})
	ack, err := b.Publish(p.ctx, lease)
	if err != nil {
		t.Fatal(err)
	}
	b.Fence(lease.SubjectName(), ack.Sequence)

	for _, i := range c.others(leader) {
		c.servers[i].Shutdown()
		c.servers[i].WaitForShutdown()
	}
	said, err := b.Conn().SubscribeSync(events.EventSubject("c", events.NodeLost, "*"))
	if err != nil {
		t.Fatal(err)
	}
	nodes, ended := []string{"n1", "n2"}, make(chan error, 2)
	for _, node := range nodes { // each is refused while the other is in process
		go func() {
			state := &events.NodeState{Node: node, Incarnation: "a"}
			ack, err := b.Publish(p.ctx, monitor.First(time.Now(), node, events.NodeLost, node, state))
			if err == nil && ack.Duplicate {
				err = fmt.Errorf("%s was said once, and is called a duplicate", node)
			}
			ended <- err
		}()
	}
	for range 2 * len(nodes) { // each says it again once a publish has waited for its acknowledgement
		if _, err := said.NextMsgWithContext(p.ctx); err != nil {
			t.Fatal(err)
		}
	}
	for _, i := range c.others(leader) {
		c.start(i)
	}
	for range 2 {
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
}

// waitForPair returns a model beside the cluster, once that can hold streams.
func waitForPair(t *testing.T, c *trio) *pair {
	p := newPair(t, 0, c.servers[0].ClientURL())
	p.replicas, p.model = 3, stream.NewServer(facts, plans, stream.Limits{}, true)
	p.eventually("the servers have elected a leader", func(ctx context.Context) bool {
		_, err := p.js.AccountInfo(ctx)
		return err == nil
	})
	p.create()
	return p
}

func (p *pair) eventually(what string, holds func(context.Context) bool) {
	for p.ctx.Err() == nil {
		ctx, cancel := context.WithTimeout(p.ctx, time.Second)
		held := holds(ctx)
		cancel()
		if held {
			return
		}
	}
	p.Fatalf("%s: not within a minute", what)
}
