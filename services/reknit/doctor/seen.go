package doctor

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/reknit/reknit/events"
	"github.com/reknit/reknit/services/reknit/internal/files"
)

// seen is how far a log came when somebody looked the last time, from this machine. Nothing in the hub tells that: a store that was put
// back has all its memories put back.
type seen struct {
	Made       time.Time `json:"made"`
	Sequence   uint64    `json:"sequence"`
	Digest     string    `json:"digest"` // of the message there
	Generation uint64    `json:"generation"`
	At         time.Time `json:"at"`
}

// putBack is what to do about a log that is an older one.
const putBack = "put the newer store back if it is still there; else reknit log accept has the cluster go on from what its nodes hold"

// log compares the log with what the doctor saw of it before, and remembers how far it is.
func (d *doctor) log(ctx context.Context) []Finding {
	now, err := d.see(ctx)
	if err != nil {
		return found(unseen, "", "%v", err)
	}
	file, err := d.remembers(now.Made)
	if err != nil {
		return found(unseen, "", "nothing is remembered of it: %v", err)
	}
	before, err := readSeen(file)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		before = now
	case err != nil:
		return found(warning, "remove the file", "%v", err)
	}
	if findings := d.compareSeen(ctx, before, now); findings != nil && !d.accepted(ctx, before.At) {
		findings[0].Do += "; to hear no more of it: remove " + file
		return findings
	}
	text, err := json.Marshal(now)
	if err == nil {
		err = files.Replace(file, text, 0o600)
	}
	if err != nil {
		return found(unseen, "", "nothing is remembered of it: %v", err)
	}
	return found(fine, "", "it is at sequence %d, and training at generation %d", now.Sequence, now.Generation)
}

// accepted reports whether somebody has accepted the log as it is since it was seen.
func (d *doctor) accepted(ctx context.Context, since time.Time) bool {
	subject := events.EventSubject(d.bus.Cluster(), events.LogAccepted, d.bus.Cluster())
	last, found, err := d.bus.LastEvent(ctx, events.EventStream, subject)
	return err == nil && found && last.Logged.After(since)
}

// compareSeen tells in what a log is older than it was, or another; nil where it goes on. The log as it was seen before stays the measure until
// this one is accepted: a warning that is given once is seen by one of those who look.
func (d *doctor) compareSeen(ctx context.Context, before, now seen) []Finding {
	when := before.At.Format(time.DateTime)
	switch {
	case !now.Made.Equal(before.Made):
		return found(warning, "nothing, if its store was removed on purpose; else put that back",
			"it is another than on %s: it was made on %s, and that one on %s",
			when, now.Made.Format(time.DateTime), before.Made.Format(time.DateTime))
	case now.Sequence < before.Sequence:
		return found(wrong, putBack, "it went back: it ends at sequence %d, and had %d on %s", now.Sequence, before.Sequence, when)
	case now.Generation < before.Generation:
		return found(wrong, putBack, "plans went back: the newest is of generation %d, and was of %d on %s",
			now.Generation, before.Generation, when)
	}
	digest, err := d.digestAt(ctx, before.Sequence)
	if err == nil && digest != "" && digest != before.Digest {
		return found(wrong, putBack, "sequence %d is another message than on %s", before.Sequence, when)
	}
	return nil
}

// see returns how far the log is.
func (d *doctor) see(ctx context.Context) (now seen, err error) {
	log, err := d.js.Stream(ctx, d.bus.Lane(events.EventStream.Name))
	if err != nil {
		return now, err
	}
	info := log.CachedInfo()
	now = seen{Made: info.Created.UTC(), Sequence: info.State.LastSeq, At: info.TimeStamp.UTC()}
	if now.Digest, err = d.digestAt(ctx, now.Sequence); err != nil {
		return now, err
	}
	plan, found, err := d.bus.LastEvent(ctx, events.PlanStream, events.PlanSubject(d.bus.Cluster(), "*"))
	if err == nil && found {
		_, err = fmt.Sscan(plan.Subject, &now.Generation)
	}
	return now, err
}

// digestAt returns the digest of a message, with its subject and when it was logged; empty where it was dropped.
func (d *doctor) digestAt(ctx context.Context, sequence uint64) (string, error) {
	log, err := d.js.Stream(ctx, d.bus.Lane(events.EventStream.Name))
	if err != nil || sequence == 0 {
		return "", err
	}
	message, err := log.GetMsg(ctx, sequence)
	if errors.Is(err, jetstream.ErrMsgNotFound) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	return events.Digest(fmt.Appendf(nil, "%s %d %s", message.Subject, message.Time.UnixNano(), message.Data)), nil
}

// remembers returns the file for what was seen of a log: of a secured installation it is named by who looks, who looks at no other
// installation, and else by the address and when the log was made.
func (d *doctor) remembers(made time.Time) (string, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	folder := filepath.Join(cache, "reknit")
	whose := d.bus.Identity().Key
	if whose == "" {
		whose = d.conn.ConnectedUrlRedacted() + " " + made.Format(time.RFC3339Nano)
	}
	name := "log-" + strings.TrimPrefix(events.Digest([]byte(whose+" "+d.bus.Cluster())), "sha256:")[:16] + ".json"
	return filepath.Join(folder, name), os.MkdirAll(folder, 0o700)
}

func readSeen(file string) (before seen, err error) {
	text, err := os.ReadFile(file)
	if err == nil {
		err = json.Unmarshal(text, &before)
	}
	if err != nil {
		err = fmt.Errorf("%s: %w", file, err)
	}
	return before, err
}
