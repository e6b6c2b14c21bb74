package transport

import (
	"fmt"
	"time"
)

// silenceLimit is the silence that makes a peer suspect: five heartbeats. They come while a step computes, too, so the
// limit does not depend on how long a step takes.
const silenceLimit = 5 * time.Second

// watchEvery is how often silence is looked for.
const watchEvery = time.Second

// sender is what is known of a node that sends to this one.
type sender struct {
	incarnation string
	last        time.Time // it was heard
	waiting     int       // its connections that wait for room in the inbox
	relayed     assembler
}

// mostSenders bounds how many nodes are remembered: more than a plan has peers for one of them.
const mostSenders = 4096

// sender returns the entry of a node; the mutex is held.
func (t *Transport) sender(node string) *sender {
	known := t.senders[node]
	if known == nil {
		known = &sender{}
		if len(t.senders) < mostSenders {
			t.senders[node] = known
		}
	}
	return known
}

func (s *sender) heard(now time.Time) { s.last = now }

// expect starts the silence of a peer anew.
func (s *sender) expect(now time.Time, incarnation string) {
	s.incarnation, s.last = incarnation, now
}

// SetHungerLimit sets how long the training loop waits for a message before relayed peers are asked to send theirs
// again: at least 5 s. The hub may have lost it, or a peer computes for as long as a step takes.
func (t *Transport) SetHungerLimit(limit time.Duration) {
	t.mutex.Lock()
	t.hungerLimit = max(limit, silenceLimit)
	t.mutex.Unlock()
}

func (t *Transport) watch() {
	ticker := time.NewTicker(watchEvery)
	defer ticker.Stop()
	last := time.Now()
	for {
		select {
		case <-t.context.Done():
			return
		case <-ticker.C:
			now := time.Now()
			for _, silence := range t.silences(now, now.Sub(last)) {
				t.config.Suspect(silence.node, false, fmt.Sprintf("silent for %.1f s", silence.time.Seconds()))
			}
			last = now
		}
	}
}

type silence struct {
	node string
	time time.Duration
}

// silences returns the peers that are silent for too long. Nothing can be said of the others if this process itself
// stood still since the last look.
func (t *Transport) silences(now time.Time, sinceLast time.Duration) []silence {
	t.mutex.Lock()
	defer t.mutex.Unlock()
	starving := t.inbox.starving(now, t.hungerLimit)
	var found []silence
	for node, link := range t.links {
		sender := t.sender(node)
		if sinceLast > 3*watchEvery || sender.waiting > 0 || link.isLeaving() {
			sender.heard(now)
			continue
		}
		if silent := now.Sub(sender.last); silent > silenceLimit {
			found = append(found, silence{node, silent})
		}
		if link.peer.Relayed && starving {
			link.ask() // the hub loses frames when it restarts
		}
	}
	return found
}
