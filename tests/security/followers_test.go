package security

import (
	"fmt"
	"maps"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/reknit/reknit/events"
	"github.com/reknit/reknit/services/reknit/provision"
	"github.com/reknit/reknit/shared/bus"
)

// follower is somebody with a kit who looks on for long, as reknit watch does.
type follower struct {
	mutex sync.Mutex
	heard []string
}

func (p *place) follow(kit string) *follower {
	f, stream := &follower{}, events.EventStream
	stop, err := p.connect(kit).Follow(p.Context(), stream, stream.Subjects(cluster), bus.New, func(event events.Event) {
		f.mutex.Lock()
		defer f.mutex.Unlock()
		f.heard = append(f.heard, event.Subject)
	})
	if err != nil {
		p.Fatal(err)
	}
	p.Cleanup(stop)
	return f
}

func (f *follower) count() int {
	f.mutex.Lock()
	defer f.mutex.Unlock()
	return len(f.heard)
}

// made returns when each consumer of the log was made.
func (p *place) made() map[string]time.Time {
	p.Helper()
	all, err := p.server.Jsz(&server.JSzOptions{Accounts: true, Streams: true, Consumer: true})
	if err != nil {
		p.Fatal(err)
	}
	made := map[string]time.Time{}
	for _, account := range all.AccountDetails {
		for _, stream := range account.Streams {
			if stream.Name == "REKNIT_EVENTS_"+cluster {
				for _, consumer := range stream.Consumer {
					made[consumer.Name] = consumer.Created
				}
			}
		}
	}
	return made
}

// suspect has the monitor say so many facts.
func (p *place) suspect(facts int) {
	p.Helper()
	monitor, speaker := p.connect("monitor"), events.Speaker{Source: "/monitor", Cluster: cluster}
	for number := range facts {
		node := fmt.Sprint("n", number)
		event := speaker.First(time.Now(), node, events.NodeSuspected, node, &events.NodeState{Node: node, Incarnation: "i", Reason: "silent"})
		if _, err := monitor.Publish(p.Context(), event); err != nil {
			p.Fatal(err)
		}
	}
}

// As people do who watch from several machines, and whoever asks from a node's machine with the kit of its agent.
func TestSeveralWhoLookOnWithOneKitDoNotDisturbOneAnother(t *testing.T) {
	t.Parallel()
	for _, kit := range []string{"user", "n1"} {
		t.Run(kit, func(t *testing.T) {
			t.Parallel()
			lookOnTogether(t, kit)
		})
	}
}

func lookOnTogether(t *testing.T, kit string) {
	p := open(t)
	prepareStreams(p)
	var followers []*follower
	for range events.MostReaders {
		followers = append(followers, p.follow(kit))
	}
	time.Sleep(2 * time.Second) // one that was made a moment ago is not read yet, and may have been taken for free
	before := p.made()
	time.Sleep(2 * time.Second) // in which nobody's is made anew
	if after := p.made(); len(before) != events.MostReaders || !maps.Equal(before, after) {
		t.Errorf("%s: consumers\n%v\nare, two seconds later,\n%v", kit, before, after)
	}
	p.suspect(20)
	for _, follower := range followers {
		for end := time.Now().Add(waits); follower.count() < 20 && time.Now().Before(end); {
			time.Sleep(10 * time.Millisecond)
		}
		if heard := follower.count(); heard != 20 {
			t.Errorf("%s: one heard %d of 20 facts", kit, heard)
		}
	}
}

// More than those take turns: each hears all, some of it late.
func TestOneTooManyWhoLooksOnWithAKitHearsAllNevertheless(t *testing.T) {
	t.Parallel()
	p := open(t)
	prepareStreams(p)
	var followers []*follower
	for range events.MostReaders + 1 {
		followers = append(followers, p.follow("user"))
	}
	p.suspect(5)
	for _, follower := range followers {
		for end := time.Now().Add(time.Minute); follower.count() < 5 && time.Now().Before(end); {
			time.Sleep(10 * time.Millisecond)
		}
		if heard := follower.count(); heard != 5 {
			t.Errorf("one heard %d of 5 facts", heard)
		}
	}
	if made := p.made(); len(made) > events.MostReaders {
		t.Errorf("there are consumers %v", made)
	}
}

// TestNobodyIsDeafForLongOnceTheServerHasNewTokens has a node be provisioned while another reads the log. The server takes the way back from
// the pull that waits there, without a word, and says to the reader for as long as the pull lasts, half a minute, what never arrives.
func TestNobodyIsDeafForLongOnceTheServerHasNewTokens(t *testing.T) {
	p := open(t)
	prepareStreams(p)
	follower := p.follow("n1")
	p.suspect(1)
	heard := func(facts int, within time.Duration) bool {
		end := time.Now().Add(within)
		for follower.count() < facts && time.Now().Before(end) {
			time.Sleep(10 * time.Millisecond)
		}
		return follower.count() >= facts
	}
	if !heard(1, waits) {
		t.Fatal("nothing is heard before")
	}
	p.provision(provision.Options{Institution: "gamma", Nodes: []string{"n9"}})
	p.push()
	p.suspect(3) // the first of which was said before
	if !heard(3, 20*time.Second) {
		t.Errorf("%d of 3 facts are heard while the pull of before would last", follower.count())
	}
}
