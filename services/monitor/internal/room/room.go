// Package room keeps the log of a secured installation from being filled by what a few nodes say. A server bounds a node's words by
// subject, and counts nobody's. An institution can enrol as many nodes as it likes, so no bound for each would hold in sum. Once the log is all but full the words of those go who take most of it, whoever they are: one who fills the log
// loses what it said itself, before anybody's words are refused. Services' words stay.
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
	tooMuch   = 7.0 / 8 // of the log's bound
	enough    = 3.0 / 4
	failPause = time.Minute
	readTime  = 30 * time.Second
	batch     = 4096 // messages, of each of which the headers alone are read
)

// Keep looks at the log until ctx ends, and makes room where it is needed. It does nothing where nobody proves who speaks.
func Keep(ctx context.Context, b *bus.Bus) {
	if !b.Secured() {
		return
	}
	for ctx.Err() == nil {
		pause := lookEvery
		if err := look(ctx, b); err != nil && ctx.Err() == nil {
			pause = failPause
			slog.ErrorContext(ctx, "no room is made in the log, which is all but full", "error", err,
				"do", "raise its bound with the keeper's kit: nats stream edit "+b.Lane(events.EventStream.Name)+" --max-bytes 8GiB")
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
		}
	}
}

// look makes room if the log is all but full. A log that does not answer is looked at again.
func look(ctx context.Context, b *bus.Bus) error {
	ctx, cancel := context.WithTimeout(ctx, readTime)
	defer cancel()
	log, err := b.JetStream().Stream(ctx, b.Lane(events.EventStream.Name))
	if err != nil {
		return nil
	}
	held, bound := float64(log.CachedInfo().State.Bytes), float64(log.CachedInfo().Config.MaxBytes)
	if bound <= 0 || held <= tooMuch*bound {
		return nil
	}
	taken, err := takenBy(ctx, log, b.Cluster())
	if err != nil {
		return err
	}
	greatest := slices.SortedFunc(maps.Keys(taken), func(a, b string) int {
		return cmp.Or(cmp.Compare(taken[b], taken[a]), cmp.Compare(a, b))
	})
	for _, node := range greatest {
		if held <= enough*bound {
			break
		}
		if err := drop(ctx, log, b.Cluster(), node); err != nil {
			return fmt.Errorf("words of %s, %d bytes: %w", node, taken[node], err)
		}
		slog.WarnContext(ctx, "the log was all but full: what a node said is dropped, who took most of it", "node", node,
			"bytes", taken[node], "do", "revoke the node, or its institution's, if it goes on: reknit provision security --revoke")
		held -= float64(taken[node])
	}
	return nil
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

// takenBy returns how many bytes of the log each node's words take. O(messages).
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
	for left := reader.CachedInfo().NumPending; left > 0; {
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
		if err := log.Purge(ctx, jetstream.WithPurgeSubject(subject)); err != nil {
			return err
		}
	}
	return nil
}
