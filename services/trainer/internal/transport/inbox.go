package transport

import (
	"context"
	"sync"
	"time"
)

// inbox keeps what has arrived until the training loop takes it. Messages of an older step are dropped, and those of a
// newer step are kept up to a bound. A message that came twice is kept once.
type inbox struct {
	mutex   sync.Mutex
	room    *sync.Cond // there may be room again for what is ahead
	news    chan struct{}
	limit   int // bytes kept of what is ahead
	ahead   int
	current position
	hungry  time.Time // since when a receiver waits; zero while none does
	mail    map[position]*mail
	closed  bool
}

// mail is what arrived for one step.
type mail struct {
	bytes int
	seen  map[name]bool
	kept  map[uint32][]Message // by phase, in order of arrival
}

// name tells a step's messages apart.
type name struct {
	from  string
	phase uint32
	item  uint64
}

// messageOverhead is about what a message takes besides its payload.
const messageOverhead = 128

func newInbox(limit int) *inbox {
	b := &inbox{limit: limit, news: make(chan struct{}, 1), mail: map[position]*mail{}}
	b.room = sync.NewCond(&b.mutex)
	return b
}

// put keeps a message. If there is no room for a message that is ahead, a patient caller waits until the step moves on,
// and an impatient one drops the message.
func (b *inbox) put(message Message, patient bool) {
	b.mutex.Lock()
	defer b.mutex.Unlock()
	bytes := len(message.Payload) + messageOverhead
	for b.current.before(message.position) && b.ahead > 0 && b.ahead+bytes > b.limit {
		if !patient || b.closed {
			return
		}
		b.room.Wait()
	}
	if message.position.before(b.current) {
		return
	}
	step := b.mail[message.position]
	if step == nil {
		step = &mail{seen: map[name]bool{}, kept: map[uint32][]Message{}}
		b.mail[message.position] = step
	}
	id := name{message.From, message.Phase, message.Item}
	if step.seen[id] {
		return
	}
	step.seen[id] = true
	step.kept[message.Phase] = append(step.kept[message.Phase], message)
	step.bytes += bytes
	if message.position != b.current {
		b.ahead += bytes
		return
	}
	b.wake()
}

func (b *inbox) wake() {
	select {
	case b.news <- struct{}{}:
	default:
	}
}

// begin drops what is older than a step.
func (b *inbox) begin(step position) {
	b.mutex.Lock()
	defer b.mutex.Unlock()
	b.current, b.ahead = step, 0
	for at, mail := range b.mail {
		if at.before(step) {
			delete(b.mail, at)
		} else if at != step {
			b.ahead += mail.bytes
		}
	}
	b.room.Broadcast()
}

// take returns the oldest message of a phase of the current step; ok is false where there is none.
func (b *inbox) take(phase uint32) (message Message, ok bool) {
	b.mutex.Lock()
	defer b.mutex.Unlock()
	step := b.mail[b.current]
	if step == nil || len(step.kept[phase]) == 0 {
		return Message{}, false
	}
	message, step.kept[phase] = step.kept[phase][0], step.kept[phase][1:]
	return message, true
}

// receive waits for a message of a phase of the current step. One goroutine at a time may wait.
func (b *inbox) receive(ctx context.Context, phase uint32) (Message, error) {
	for {
		if err := ctx.Err(); err != nil {
			return Message{}, err
		}
		if message, ok := b.take(phase); ok {
			return message, nil
		}
		b.hunger(time.Now())
		select {
		case <-ctx.Done():
		case <-b.news:
		}
		b.hunger(time.Time{})
	}
}

func (b *inbox) hunger(since time.Time) {
	b.mutex.Lock()
	b.hungry = since
	b.mutex.Unlock()
}

// starving reports whether a receiver has waited for longer than a limit. It does so once a limit.
func (b *inbox) starving(now time.Time, limit time.Duration) bool {
	b.mutex.Lock()
	defer b.mutex.Unlock()
	if b.hungry.IsZero() || now.Sub(b.hungry) <= limit {
		return false
	}
	b.hungry = now
	return true
}

// close frees those who wait for room.
func (b *inbox) close() {
	b.mutex.Lock()
	b.closed = true
	b.mutex.Unlock()
	b.room.Broadcast()
}
