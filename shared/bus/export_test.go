package bus

import (
	"context"
	"testing"
	"time"
)

// SetUnreadableAfter has a reader give up a payload that early, for one test.
func SetUnreadableAfter(t *testing.T, d time.Duration) { set(t, &unreadableAfter, d) }

// SetMissingAfter has a reader give up that early what a node names and the store does not have, for one test.
func SetMissingAfter(t *testing.T, d time.Duration) { set(t, &missingAfter, d) }

// SetRepeatWait has a publisher wait that long before it repeats, for one test.
func SetRepeatWait(t *testing.T, d time.Duration) {
	set(t, &firstRepeatWait, d)
	set(t, &lastRepeatWait, d)
}

func set(t *testing.T, setting *time.Duration, d time.Duration) {
	before := *setting
	*setting = d
	t.Cleanup(func() { *setting = before })
}

// SetLostAfter has readers wait that long for messages that may be lost, for one test.
func SetLostAfter(t *testing.T, d time.Duration) {
	set(t, &quiet, d)
	set(t, &stalled, d)
}

// SetSureAfter has a bus look again that early at a log that seems to end too soon, for one test.
func SetSureAfter(t *testing.T, d time.Duration) { set(t, &sureAfter, d) }

// NoteLog notes when the log was made, as was looked after so many reconnections.
func NoteLog(b *Bus, made time.Time, count uint64) { b.noteLog(made, count) }

// Reads notes that this bus has read a message in its log.
func (b *Bus) Reads(sequence uint64, at time.Time, data []byte) {
	log, _ := b.mark.life()
	b.mark.meet(log, sequence, at, data)
}

// MakeSure looks which log there is.
func MakeSure(ctx context.Context, b *Bus) error { return b.makeSure(ctx) }

// Unheard is what is said of a server that took so many connections, and let nobody in.
func Unheard(kit string, attempts int64) string {
	d := dialer{}
	d.attempts.Store(attempts)
	return d.unheard(kit)
}
