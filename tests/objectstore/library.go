package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/reknit/reknit/events"
	"github.com/reknit/reknit/services/agent/shards"
)

// readByLibrary lists the bucket of a node and reads a part of it, with nothing but the client library and the node's own
// credentials, while the node gives: a reader wants the part meanwhile, so that it is there for as long as this takes.
func readByLibrary(ctx context.Context, pid int, address string, offer events.Offer) error {
	digest, bucket := offer.Parts[0].Digest, events.ShardBucketOf(offer.Node)
	reader, err := nats.Connect("nats://"+address, shards.ReaderOptions()...)
	if err != nil {
		return err
	}
	defer reader.Close()
	answer, err := reader.RequestWithContext(ctx, "shards.want."+bucket, []byte(digest))
	if err != nil || answer.Header.Get("Status") != "" {
		return fmt.Errorf("%s does not give %s: %w, %v", offer.Node, digest, err, answer)
	}
	conn, err := connectAsOwner(pid)
	if err != nil {
		return err
	}
	defer conn.Close()
	js, err := jetstream.New(conn)
	if err != nil {
		return err
	}
	objects, err := js.ObjectStore(ctx, bucket)
	if err != nil {
		return err
	}
	listed, err := objects.List(ctx)
	if err != nil || len(listed) == 0 {
		return fmt.Errorf("%d objects are listed: %w", len(listed), err)
	}
	data, err := objects.GetBytes(ctx, digest)
	if err != nil || events.Digest(data) != digest {
		return fmt.Errorf("got %d bytes of %s: %w", len(data), digest, err)
	}
	return reader.Publish("shards.have."+bucket, []byte(digest))
}

// connectAsOwner finds the context that a process's store has written.
func connectAsOwner(pid int) (*nats.Conn, error) {
	for _, parent := range []string{"/dev/shm", os.TempDir()} {
		found, err := filepath.Glob(filepath.Join(parent, fmt.Sprintf("reknit-shards-%d-*", pid), shards.ContextFile))
		if err != nil || len(found) == 0 {
			continue
		}
		text, err := os.ReadFile(found[0])
		if err != nil {
			return nil, err
		}
		var context struct{ URL, User, Password string }
		if err := json.Unmarshal(text, &context); err != nil {
			return nil, err
		}
		return nats.Connect(context.URL, nats.UserInfo(context.User, context.Password))
	}
	return nil, fmt.Errorf("no %s of process %d", shards.ContextFile, pid)
}
