package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/reknit/reknit/events"
	"github.com/reknit/reknit/services/agent/shards"
)

// readByLibrary lists the bucket of a node and reads a part of it, with nothing but the client library and the node's own
// credentials, while the node gives: a reader wants the part meanwhile, so that it is there for as long as this takes.
func readByLibrary(ctx context.Context, folder, address string, offer events.Offer) error {
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
	conn, err := connectAsOwner(folder, address)
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

// connectAsOwner finds the context that the store at an address has written somewhere below a folder.
func connectAsOwner(folder, address string) (*nats.Conn, error) {
	_, port, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	type login struct{ URL, User, Password string }
	var found login
	err = filepath.WalkDir(folder, func(file string, entry fs.DirEntry, err error) error {
		if err != nil || entry.Name() != shards.ContextFile {
			return err
		}
		text, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		var context login
		if err := json.Unmarshal(text, &context); err != nil {
			return err
		}
		if strings.HasSuffix(context.URL, ":"+port) {
			found = context
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	if found.URL == "" {
		return nil, fmt.Errorf("no %s of the store at %s in %s", shards.ContextFile, address, folder)
	}
	return nats.Connect(found.URL, nats.UserInfo(found.User, found.Password), nats.NoReconnect(), nats.Name("tap"))
}
