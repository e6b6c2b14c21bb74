package service_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/reknit/reknit/events"
	"github.com/reknit/reknit/shared/service"
)

func TestOfThreeThatStartAtOnceOneTakesTheLeaseAndTwoStandBy(t *testing.T) {
	f := newFixture(t)
	leases := f.said(events.LeaseTaken)
	var addresses [3]string
	for i := range addresses {
		addresses[i] = freeAddress(t)
		f.run(service.Options{Machine: &clerk{}, Address: addresses[i]})
	}
	f.until("one is ready and two stand by", func() bool {
		acting, standing := 0, 0
		for _, address := range addresses {
			switch said := says(address + "/readyz"); {
			case strings.HasPrefix(said, "ok"):
				acting++
			case strings.Contains(said, "standby"):
				standing++
			}
		}
		return acting == 1 && standing == 2
	})
	f.expect(leases, "negotiator")
	if len(leases) != 0 {
		t.Errorf("the lease was taken %d times more", len(leases))
	}
}

func TestACopyThatIsOvertakenWhileItAsksStandsBy(t *testing.T) {
	f := newFixture(t)
	leases, address, asks := f.said(events.LeaseTaken), freeAddress(t), 0
	negotiator := events.Speaker{Source: "/negotiator", Cluster: cluster}
	_, err := f.bus.Conn().Subscribe(events.LeaseSubject(cluster, "negotiator", ""), func(ask *nats.Msg) {
		if asks++; asks > 1 {
			_ = ask.Respond(nil)
			return
		}
		lease := &events.Lease{Service: "negotiator", Instance: "other"}
		if _, err := f.bus.Publish(f.ctx, negotiator.First(time.Now(), "other", events.LeaseTaken, "negotiator", lease)); err != nil {
			t.Error(err)
		}
	})
	if err := errors.Join(err, f.bus.Conn().Flush()); err != nil {
		t.Fatal(err)
	}
	f.run(service.Options{Machine: &clerk{}, Address: address})
	f.untilReadySays(address, "standby")
	f.expect(leases, "negotiator")
	if len(leases) != 0 {
		t.Error("the lease was taken from an instance that took it meanwhile")
	}
}

func TestACopyGivesOneThatWorkedTheTimeToReconnect(t *testing.T) {
	f := newFixture(t)
	leases, address := f.said(events.LeaseTaken), freeAddress(t)
	asked := make(chan struct{}, 64)
	answer := func() *nats.Subscription {
		answers, err := f.bus.Conn().Subscribe(events.LeaseSubject(cluster, "negotiator", ""), func(ask *nats.Msg) {
			asked <- struct{}{}
			_ = ask.Respond(nil)
		})
		if err := errors.Join(err, f.bus.Conn().Flush()); err != nil {
			t.Error(err)
		}
		return answers
	}
	answers := answer()
	f.run(service.Options{Machine: &clerk{}, Address: address})
	f.untilReadySays(address, "standby")
	answers.Unsubscribe()
	for len(asked) > 0 {
		<-asked
	}
	time.AfterFunc(600*time.Millisecond, func() { answer() }) // the longest that a client waits before it reconnects
	select {
	case <-asked:
	case <-leases:
		t.Error("the lease was taken from an instance that was reconnecting")
	case <-f.ctx.Done():
		t.Error("it asks no more")
	}
}

func TestACopyDoesNotTakeTheLeaseBecauseTheServerDied(t *testing.T) {
	f := newFixture(t)
	leases, address := f.said(events.LeaseTaken), freeAddress(t)
	f.run(service.Options{Machine: &clerk{}})
	f.expect(leases, "negotiator")
	f.run(service.Options{Machine: &clerk{}, Address: address})
	f.untilReadySays(address, "standby")
	f.restart()
	asks, err := f.connect().Conn().SubscribeSync(events.LeaseSubject(cluster, "negotiator", ""))
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if _, err := asks.NextMsgWithContext(f.ctx); err != nil {
			t.Fatal(err)
		}
	}
	if len(leases) != 0 {
		t.Error("the lease was taken from an instance that works")
	}
}
