package bus

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/reknit/reknit/events"
)

// ErrLogReplaced says that the event log is another one than before: its store was wiped, or restored from a backup.
var ErrLogReplaced = errors.New("the event log is another one: its store was wiped, lost its end, or is older")

// sureAfter is how long a log on several servers may seem to end too early: a leader that has just been elected may have to catch up. On
// one server a shorter log is another one at once: within this time others would write beyond what was read, and hide it. A log that is
// missing is made after this time: a server forgets a deleted stream before its files are gone, and one that is made meanwhile goes on
// from them and answers nobody (nats-server 2.15.2).
var sureAfter = 2 * time.Second

// mark tells one log from another.
type mark struct {
	sync.Mutex
	made  time.Time       // when its stream was; zero: nobody looked yet
	last  uint64          // the greatest sequence that this bus has met in it
	read  uint64          // of the last message that it has read, which may be an earlier one; zero: none
	at    time.Time       // when that message was logged
	data  []byte          // of that message
	lasts context.Context // ends where another log takes its place
	end   context.CancelFunc
	from  uint64        // sequence behind which a follower reads that followed the log before
	count uint64        // of reconnections after which it was looked which log there is
	news  chan struct{} // closed when it was looked again; nil: nobody waits for that
}

// meet notes a message of a log, while there is no other. One that was said and not read has no time.
func (m *mark) meet(log context.Context, sequence uint64, at time.Time, data []byte) {
	m.Lock()
	defer m.Unlock()
	if log.Err() != nil {
		return
	}
	m.last = max(m.last, sequence)
	if sequence > m.read && !at.IsZero() {
		m.read, m.at, m.data = sequence, at, data
	}
}

// provisioned notes which log there is, as was looked after so many reconnections, where none is known.
func (m *mark) provisioned(made time.Time, count uint64) {
	if known, _, _, _ := m.known(); known.IsZero() {
		m.become(made, 0, nil)
		m.looked(count)
	}
}

// noteLog notes which log there is, as was looked after so many reconnections, where none is known. A reconnection since then looked for
// nothing, as no log was known: without another look everybody would wait for one.
func (b *Bus) noteLog(made time.Time, count uint64) {
	b.mark.provisioned(made, count)
	if b.conn.Stats().Reconnects != count {
		b.lookAgain()
	}
}

// become notes that there is another log, which ends at a sequence.
func (m *mark) become(made time.Time, last uint64, differs error) {
	m.Lock()
	defer m.Unlock()
	if m.end != nil {
		m.end()
	}
	m.lasts, m.end = context.WithCancel(context.Background())
	m.made, m.last, m.read, m.at, m.data, m.from = made, last, 0, time.Time{}, nil, 0
	if errors.Is(differs, errShorter) {
		m.from = last
	}
}

// known returns what the log is known by: when it was made, the greatest sequence, and the last message that was read.
func (m *mark) known() (made time.Time, last, read uint64, at time.Time) {
	m.Lock()
	defer m.Unlock()
	return m.made, m.last, m.read, m.at
}

// hasRead reports whether a message is the one that was read there; true where another was read since.
func (m *mark) hasRead(sequence uint64, data []byte) bool {
	m.Lock()
	defer m.Unlock()
	return m.read != sequence || bytes.Equal(m.data, data)
}

// life returns a context that ends with the log, and where a follower goes on that has read another one.
func (m *mark) life() (lasts context.Context, from uint64) {
	m.Lock()
	defer m.Unlock()
	if m.lasts == nil { // nobody looked yet
		return context.Background(), 0
	}
	return m.lasts, m.from
}

// looked notes that it was looked which log there is, after so many reconnections.
func (m *mark) looked(count uint64) {
	m.Lock()
	defer m.Unlock()
	m.count = max(m.count, count)
	if m.news != nil {
		close(m.news)
		m.news = nil
	}
}

// unlooked returns what is closed when it was looked again, after fewer reconnections than there were; nil where it was looked after all.
func (m *mark) unlooked(count uint64) <-chan struct{} {
	m.Lock()
	defer m.Unlock()
	if m.made.IsZero() || m.count >= count {
		return nil
	}
	if m.news == nil {
		m.news = make(chan struct{})
	}
	return m.news
}

// RepeatInLog repeats as Repeat does what is written into a log, or because of it. After a reconnection it waits until it is known which log
// there is, and fails with ErrLogReplaced where that is another one than before, or than the one in which the lease is.
func (b *Bus) RepeatInLog(ctx context.Context, what string, attempt func(context.Context) error) error {
	log, _ := b.mark.life()
	if fence := b.fence.Load(); fence != nil {
		log = fence.log
	}
	return b.repeatIn(ctx, log, what, attempt)
}

func (b *Bus) repeatIn(ctx, log context.Context, what string, attempt func(context.Context) error) error {
	return b.Repeat(ctx, what, func(ctx context.Context) error {
		if err := b.waitForLook(ctx); err != nil {
			return err
		}
		if log.Err() != nil {
			return ErrLogReplaced
		}
		return attempt(ctx)
	})
}

func (b *Bus) waitForLook(ctx context.Context) error {
	for {
		unlooked := b.mark.unlooked(b.conn.Stats().Reconnects)
		if unlooked == nil {
			return nil
		}
		select {
		case <-unlooked:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// LogMade returns when the log was made, by its own clock; zero before Provision.
func (b *Bus) LogMade() time.Time {
	made, _, _, _ := b.mark.known()
	return made
}

// Replaced delivers an error, which is ErrLogReplaced, each time that the event log turns out to be another one than before. It is
// looked for when a connection comes back, and where a stream is missing. By then all streams are there again.
func (b *Bus) Replaced() <-chan error { return b.replaced }

// lookAgain looks which log there is, where this bus knows one. It looks once more if somebody asks meanwhile.
func (b *Bus) lookAgain() {
	if made, _, _, _ := b.mark.known(); made.IsZero() || b.looks.Add(1) > 1 {
		return
	}
	go func() {
		for more := true; more; {
			asked, count := b.looks.Load(), b.conn.Stats().Reconnects
			if b.lookUntilSure() == nil || b.ends.Err() != nil || b.conn.IsClosed() {
				b.mark.looked(count)
			}
			more = !b.looks.CompareAndSwap(asked, 0)
		}
	}()
}

// lookUntilSure looks again until it is known which log there is: nothing is said before. Trouble tells why it is not known.
func (b *Bus) lookUntilSure() error {
	return b.Repeat(b.ends, "look whether the event log is the one that it was", func(ctx context.Context) error {
		err := b.makeSure(ctx)
		if err != nil && !transient(err) && !errors.Is(err, nats.ErrConnectionClosed) {
			return errors.New(err.Error()) // an operator may mend it
		}
		return err
	})
}

// lookEvery is how often it is looked again because nobody answers for a stream: among several servers that also is so while there is
// no leader, and a thousand nodes ask.
const lookEvery = 10 * time.Second

// lookIfMissing looks again, not often, where nobody answers for a stream.
func (b *Bus) lookIfMissing(err error) {
	missing := errors.Is(err, jetstream.ErrNoStreamResponse) || errors.Is(err, jetstream.ErrStreamNotFound)
	now := time.Now().UnixNano()
	if last := b.looked.Load(); missing && now-last >= int64(lookEvery) && b.looked.CompareAndSwap(last, now) {
		b.lookAgain()
	}
}

// makeSure compares the log with the one that is known. All streams that are missing are made if it is another.
func (b *Bus) makeSure(ctx context.Context) error {
	differs, info, err := b.compareLog(ctx)
	if errors.Is(differs, errShorter) && info.Config.Replicas > 1 || errors.Is(err, jetstream.ErrStreamNotFound) {
		select {
		case <-time.After(sureAfter):
		case <-ctx.Done():
			return ctx.Err()
		}
		differs, info, err = b.compareLog(ctx)
	}
	if errors.Is(err, jetstream.ErrStreamNotFound) || differs != nil {
		if err := b.Provision(ctx); err != nil {
			return err
		}
		differs, info, err = b.compareLog(ctx)
	}
	if err != nil || differs == nil {
		return err
	}
	b.mark.become(info.Created, info.State.LastSeq, differs)
	replaced := fmt.Errorf("%w: %w", ErrLogReplaced, differs)
	slog.WarnContext(ctx, "the event log was replaced", "error", replaced)
	select {
	case b.replaced <- replaced:
	default: // nobody took the last word, which says the same
	}
	return nil
}

// replacedOr returns ErrLogReplaced where the log has been replaced since a life of it was looked up, or is now, and else err.
func (b *Bus) replacedOr(ctx context.Context, log context.Context, err error) error {
	if log.Err() != nil {
		return ErrLogReplaced
	}
	differs, _, looked := b.compareLog(ctx)
	switch {
	case errors.Is(looked, jetstream.ErrStreamNotFound):
		return fmt.Errorf("%w: it is gone", ErrLogReplaced)
	case differs != nil:
		return fmt.Errorf("%w: %w", ErrLogReplaced, differs)
	}
	return err
}

// errShorter says that a log lacks what it had.
var errShorter = errors.New("it ends before what was read of it")

// compareLog returns in what the log differs from the one that is known; nil: in nothing.
func (b *Bus) compareLog(ctx context.Context) (differs error, info *jetstream.StreamInfo, err error) {
	made, last, read, at := b.mark.known()
	err = b.Repeat(ctx, "look at the log", func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, publishTimeout)
		defer cancel()
		stream, err := b.js.Stream(ctx, b.Lane(events.EventStream.Name))
		if err != nil {
			return err
		}
		info = stream.CachedInfo()
		switch {
		case made.IsZero():
		case !info.Created.Equal(made):
			differs = fmt.Errorf("it was made at %s, and the one before at %s", info.Created.UTC().Format(time.RFC3339Nano),
				made.UTC().Format(time.RFC3339Nano))
		case info.State.LastSeq < last:
			differs = fmt.Errorf("%w: at sequence %d, where %d was read", errShorter, info.State.LastSeq, last)
		case read > 0:
			differs, err = b.compareMessage(ctx, read, at)
		}
		return err
	})
	return differs, info, err
}

// compareMessage looks at a message that was read before. One that was dropped since tells nothing.
func (b *Bus) compareMessage(ctx context.Context, sequence uint64, at time.Time) (differs, err error) {
	stream, err := b.leader(ctx, events.EventStream)
	if err != nil {
		return nil, err
	}
	held, err := stream.GetMsg(ctx, sequence)
	switch {
	case errors.Is(err, jetstream.ErrMsgNotFound):
		return nil, nil
	case err == nil && !held.Time.Equal(at):
		differs = fmt.Errorf("%w: sequence %d was logged at %s, and again at %s", errShorter, sequence,
			at.UTC().Format(time.RFC3339Nano), held.Time.UTC().Format(time.RFC3339Nano))
	case err == nil && !b.mark.hasRead(sequence, held.Data):
		differs = fmt.Errorf("%w: sequence %d is another message than was read", errShorter, sequence)
	}
	return differs, err
}

// renew begins to read a log that has taken the place of the one that was read: of one that is shorter what comes, and else all.
func (f *follower) renew(ctx context.Context) error {
	log, from := f.bus.mark.life()
	if f.log != nil && f.log != log && f.end == math.MaxUint64 {
		if from > 0 && f.stream.Name != events.EventStream.Name {
			held, err := f.bus.js.Stream(ctx, f.bus.Lane(f.stream.Name))
			if err != nil {
				return err
			}
			from = min(f.last, held.CachedInfo().State.LastSeq)
		}
		f.last = from
	}
	f.log = log
	return nil
}
