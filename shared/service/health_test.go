package service_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/reknit/reknit/events"
	"github.com/reknit/reknit/shared/bus"
	"github.com/reknit/reknit/shared/service"
)

// stands is the standstill in the tests of health; a service is stuck after six of them.
const stands = 50 * time.Millisecond

// served runs a clerk with an address, until it is ready.
func (f *fixture) served(machine *clerk) (address string) {
	address = freeAddress(f.T)
	f.run(service.Options{Machine: machine, Address: address, TickEvery: time.Millisecond})
	f.untilReadySays(address, "ok")
	return address
}

func TestAMachineThatDoesNotReturnIsStuckUntilItDoes(t *testing.T) {
	service.SetStandstill(t, stands)
	f, machine := newFixture(t), &clerk{waits: make(chan struct{})}
	address := f.served(machine)
	f.lose("n1")
	f.untilSays(address+"/healthz", "stuck: computing since")
	if err := service.Healthcheck(f.ctx, address, "live"); err == nil || !strings.Contains(err.Error(), "node.lost of n1") {
		t.Errorf("healthcheck live: %v", err)
	}
	close(machine.waits)
	f.untilSays(address+"/healthz", "ok")
}

// A consumer that its server pauses delivers nothing, and its reader hears no error: what a lost request looks like.
func TestAServiceThatGetsNothingWhileTheLogHasMoreForItIsStuck(t *testing.T) {
	service.SetStandstill(t, stands)
	f := newFixture(t)
	address := f.served(&clerk{})
	log, err := f.bus.JetStream().Stream(f.ctx, f.bus.Lane(events.EventStream.Name))
	if err != nil {
		t.Fatal(err)
	}
	for consumer := range log.ConsumerNames(f.ctx).Name() {
		if _, err := log.PauseConsumer(f.ctx, consumer, time.Now().Add(time.Hour)); err != nil {
			t.Fatal(err)
		}
	}
	f.lose("n1")
	f.lose("n2")
	f.untilReadySays(address, "behind by 2 events, the oldest")
	f.untilSays(address+"/healthz", "stuck: behind by 2 events, the oldest")
	for consumer := range log.ConsumerNames(f.ctx).Name() {
		if _, err := log.ResumeConsumer(f.ctx, consumer); err != nil {
			t.Fatal(err)
		}
	}
	f.untilSays(address+"/healthz", "ok")
	f.untilReadySays(address, "ok")
}

func TestAServiceThatIsCutOffFromTheLogIsNotReadyAndNotRestarted(t *testing.T) {
	service.SetStandstill(t, stands)
	f, machine := newFixture(t), &clerk{waits: make(chan struct{})}
	address := f.served(machine)
	f.lose("n1")
	f.until("the machine has it", machine.asked.Load)
	f.halt()
	close(machine.waits) // what it says now, nobody takes
	f.untilReadySays(address, "nats: expected a connection")
	f.staysLive(address)
	f.restart()
	f.untilReadySays(address, "ok")
}

func TestAServiceWhoseLogIsFullIsNotReadyAndNotRestarted(t *testing.T) {
	service.SetStandstill(t, stands)
	f, machine := newFixture(t), &clerk{waits: make(chan struct{})}
	address := f.served(machine)
	f.lose("n1")
	log, err := f.bus.JetStream().Stream(f.ctx, f.bus.Lane(events.EventStream.Name))
	if err != nil {
		t.Fatal(err)
	}
	bound := func(bytes int64) {
		config := log.CachedInfo().Config
		config.MaxBytes = bytes
		if _, err := f.bus.JetStream().UpdateStream(f.ctx, config); err != nil {
			t.Fatal(err)
		}
	}
	bound(1)
	close(machine.waits)
	f.untilReadySays(address, bus.ErrFull.Error())
	f.staysLive(address)
	bound(1 << 20)
	f.untilReadySays(address, "ok")
}

func TestACopyThatStandsByIsNotReadyAndNotRestarted(t *testing.T) {
	service.SetStandstill(t, stands)
	f := newFixture(t)
	f.served(&clerk{})
	address := freeAddress(t)
	f.run(service.Options{Machine: &clerk{}, Address: address})
	f.untilReadySays(address, "standby: another instance holds the lease and works")
	f.staysLive(address)
	if err := service.Healthcheck(f.ctx, address, "copy"); err != nil {
		t.Errorf("whoever takes a copy that stands by for ready: %v", err)
	}
}

func TestAServiceThatWaitsForItsFirstServerIsNotReadyAndNotRestarted(t *testing.T) {
	service.SetStandstill(t, stands)
	f := newFixture(t)
	f.halt()
	common := service.Common{URL: f.url, Cluster: cluster, HTTPAddress: freeAddress(t)}
	ctx, cancel := context.WithCancel(f.ctx)
	connected := make(chan error, 1)
	go func() {
		b, err := common.Connect(ctx, "monitor")
		if err == nil {
			b.Close()
		}
		connected <- err
	}()
	defer cancel()
	f.untilReadySays(common.HTTPAddress, "nats: no server has answered yet")
	if err := service.Healthcheck(f.ctx, common.HTTPAddress, "copy"); err == nil {
		t.Error("a copy that could not take over passes for ready")
	}
	f.staysLive(common.HTTPAddress)
	f.restart()
	if err := <-connected; err != nil {
		t.Error(err)
	}
}

func TestTheLagOfAReaderIsWhatItHasNotAcknowledged(t *testing.T) {
	f := newFixture(t)
	subjects := []string{events.EventSubject(cluster, events.NodeLost, "*"), events.EventSubject(cluster, events.JoinRequested, "*")}
	consumer, err := f.bus.Consume(f.ctx, "reader", 0, subjects)
	if err != nil {
		t.Fatal(err)
	}
	defer consumer.Stop()
	f.lose("n1")
	last := f.lose("n2")
	next := func() bus.Delivery {
		sealed, err := consumer.Next(f.ctx)
		if err != nil {
			t.Fatal(err)
		}
		delivery, err := sealed.Open(f.ctx, nil)
		if err != nil {
			t.Fatal(err)
		}
		return delivery
	}
	first := next()
	lag, err := consumer.Lag(f.ctx)
	if err != nil || lag.Messages != 2 || lag.Taken != first.Event.Sequence || lag.Age <= 0 {
		t.Errorf("%+v, %v", lag, err)
	}
	second := next()
	if second.Event.ID != last.ID {
		t.Fatal(second.Event)
	}
	if err := second.Ack(); err != nil {
		t.Fatal(err)
	}
	if err := first.Ack(); err != nil {
		t.Fatal(err)
	}
	f.until("nothing is left", func() bool {
		lag, err := consumer.Lag(f.ctx)
		return err == nil && lag.Messages == 0 && lag.Age == 0
	})
}
