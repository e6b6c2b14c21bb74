// Package room keeps a node from filling the log of a secured installation. A server bounds a node's words by subject, and counts nobody's.
// Once the log is all but full the words of the nodes go that take most of it, and a sixteenth at least: one that fills the log loses what
// it said itself, before anybody's words are refused, or after minutes if its words are small. Services' words stay, and those of nodes
// that take less. Records of messages that services refused go first: who says what is no event has them say one for each. Many nodes of one institution, each of which takes less, fill it still: the keeper's kit raises its bound then.
package room

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/reknit/reknit/events"
	"github.com/reknit/reknit/shared/bus"
)

// A thousand nodes that fail once a day say 3.4 GiB of the 4 that the log holds, which is less than tooMuch. Behind it half a gigabyte is
// left: 16 s, at the 31 MB/s with which one kit filled a log.
const (
	lookEvery = time.Second
	tooMuch   = 7.0 / 8  // of the log's bound
	enough    = 3.0 / 4  // of it
	little    = 1.0 / 16 // of it: the words of a node that takes less stay
	failPause = time.Minute
	readTime  = 10 * time.Minute
	purgeTime = 30 * time.Second
	batch     = 4096 // messages, of each of which the headers alone are read

	refusalsKept = 1024 // of the log's records of refused messages; each has 3 KB at most
)

var errNobody = errors.New("expected a node whose words take a sixteenth of the log's bound, found none")

// Keep looks at the log until ctx ends, and makes room where it is needed. It does nothing where nobody proves who speaks. Each copy of the
// monitor looks, whether it leads or stands by: none can take the lease in a log that is full.
func Keep(ctx context.Context, b *bus.Bus) {
	if !b.Secured() {
		return
	}
	said := false // that no node takes enough
	for ctx.Err() == nil {
		pause, err := lookEvery, look(ctx, b)
		if err != nil && ctx.Err() == nil {
			pause = failPause
			if !said || !errors.Is(err, errNobody) {
				slog.ErrorContext(ctx, "no room is made in the log, which is all but full", "error", err,
					"do", "raise its bound with the keeper's kit: nats stream edit "+b.Lane(events.EventStream.Name)+" --max-bytes 8GiB")
			}
		}
		said = errors.Is(err, errNobody)
		select {
		case <-time.After(pause):
		case <-ctx.Done():
		}
	}
}

// look makes room if the log is all but full. A log that does not answer is looked at again.
func look(ctx context.Context, b *bus.Bus) error {
	log, err := b.JetStream().Stream(ctx, b.Lane(events.EventStream.Name))
	if err != nil || !holds(log.CachedInfo(), tooMuch) {
		return nil
	}
	if made, err := dropRefusals(ctx, log, b.Cluster()); made || err != nil {
		return err
	}
	taken, err := takenBy(ctx, log, b.Cluster())
	if err != nil {
		return err
	}
	return makeRoom(ctx, log, b.Cluster(), taken)
}

// holds reports whether a log holds more than this share of its bound.
func holds(log *jetstream.StreamInfo, share float64) bool {
	return log.Config.MaxBytes > 0 && float64(log.State.Bytes) > share*float64(log.Config.MaxBytes)
}

// dropRefusals drops the records of refused messages but the newest, and reports whether that makes room.
func dropRefusals(ctx context.Context, log jetstream.Stream, cluster string) (made bool, err error) {
	before := log.CachedInfo().State.Msgs
	if err := purge(ctx, log, events.EventSubject(cluster, events.EventRefused, "*"), jetstream.WithPurgeKeep(refusalsKept)); err != nil {
		return false, fmt.Errorf("records of refused messages: %w", err)
	}
	now, err := log.Info(ctx)
	if err != nil {
		return false, err
	}
	if now.State.Msgs < before {
		slog.WarnContext(ctx, "the log was all but full: records of refused messages are dropped, but the newest", "dropped", before-now.State.Msgs,
			"do", "reknit doctor tells who says what is no event")
	}
	return !holds(now, tooMuch), nil
}

// makeRoom drops the words of the nodes that were found to take most, until there is room. The log is asked anew before each: another copy
// may have made room since they were counted.
func makeRoom(ctx context.Context, log jetstream.Stream, cluster string, taken map[string]uint64) error {
	least := little * float64(log.CachedInfo().Config.MaxBytes)
	greatest := slices.SortedFunc(maps.Keys(taken), func(a, b string) int {
		return cmp.Or(cmp.Compare(taken[b], taken[a]), cmp.Compare(a, b))
	})
	if len(greatest) == 0 || float64(taken[greatest[0]]) < least {
		now, err := log.Info(ctx)
		if err != nil || !holds(now, tooMuch) {
			return err
		}
		return fmt.Errorf("%w; it holds %d bytes, of which %s", errNobody, now.State.Bytes, spread(greatest, taken))
	}
	for _, node := range greatest {
		now, err := log.Info(ctx)
		if err != nil || !holds(now, enough) || float64(taken[node]) < least {
			return err
		}
		if err := drop(ctx, log, cluster, node); err != nil {
			return fmt.Errorf("words of %s, %d bytes: %w", node, taken[node], err)
		}
		slog.WarnContext(ctx, "the log was all but full: what a node said is dropped, who took most of it", "node", node,
			"bytes", taken[node], "do", "revoke the node, or its institution's, if it goes on: reknit provision security --revoke")
	}
	return nil
}

// spread tells what nodes' words take, and whose take most.
func spread(greatest []string, taken map[string]uint64) string {
	if len(greatest) == 0 {
		return "services said all"
	}
	all := uint64(0)
	for _, bytes := range taken {
		all += bytes
	}
	return fmt.Sprintf("%d nodes said %d, and services the rest; %s said most, %d", len(greatest), all, greatest[0], taken[greatest[0]])
}

// wordsOf lists the subjects on which a node alone speaks; "*" stands for every node.
func wordsOf(cluster, node string) []string {
	var subjects []string
	for _, row := range events.Catalogue {
		if !slices.Contains(row.SaidBy, "node") {
			continue
		}
		subject := node
		if row.Kind.About() == events.AboutUnit {
			subject = "*"
		}
		subjects = append(subjects, events.Event{Kind: row.Kind, Cluster: cluster, Subject: subject}.SubjectBy(node))
	}
	return subjects
}

// takenBy returns how many bytes of the log each node's words take, of those that can be read in readTime. O(messages).
func takenBy(ctx context.Context, log jetstream.Stream, cluster string) (map[string]uint64, error) {
	reader, err := log.CreateConsumer(ctx, jetstream.ConsumerConfig{
		Name: rand.Text(), FilterSubjects: wordsOf(cluster, "*"), HeadersOnly: true, AckPolicy: jetstream.AckNonePolicy,
		MemoryStorage: true, Replicas: 1, InactiveThreshold: failPause,
	})
	if err != nil {
		return nil, err
	}
	defer func() { _ = log.DeleteConsumer(context.WithoutCancel(ctx), reader.CachedInfo().Name) }()
	taken := map[string]uint64{}
	for began, left := time.Now(), reader.CachedInfo().NumPending; left > 0 && time.Since(began) < readTime; {
		messages, err := reader.FetchNoWait(batch)
		if err != nil {
			return nil, err
		}
		came := false
		for message := range messages.Messages() {
			metadata, err := message.Metadata()
			if err != nil {
				return nil, err
			}
			node := message.Subject()[strings.LastIndexByte(message.Subject(), '.')+1:]
			taken[node] += bytesOf(message.Headers()) + uint64(len(message.Subject()))
			came, left = true, metadata.NumPending
		}
		if err := messages.Error(); err != nil && !errors.Is(err, nats.ErrTimeout) {
			return nil, err
		}
		if !came {
			break // the rest was dropped meanwhile
		}
	}
	return taken, ctx.Err()
}

// bytesOf returns how many bytes a message has of which the headers are here: one of them tells the length of the rest.
func bytesOf(headers nats.Header) uint64 {
	bytes, _ := strconv.ParseUint(headers.Get(nats.MsgSize), 10, 64)
	for name, values := range headers {
		for _, value := range values {
			bytes += uint64(len(name) + len(value))
		}
	}
	return bytes
}

// drop removes what a node said, and what persons asked of it. Services' words of it stay.
func drop(ctx context.Context, log jetstream.Stream, cluster, node string) error {
	for _, subject := range wordsOf(cluster, node) {
		if err := purge(ctx, log, subject); err != nil {
			return err
		}
	}
	return nil
}

func purge(ctx context.Context, log jetstream.Stream, subject string, options ...jetstream.StreamPurgeOpt) error {
	ctx, cancel := context.WithTimeout(ctx, purgeTime)
	defer cancel()
	return log.Purge(ctx, append(options, jetstream.WithPurgeSubject(subject))...)
}
