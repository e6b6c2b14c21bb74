// Package shards moves shard parts between nodes over JetStream object stores. Its README tells how.
package shards

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nuid"

	"github.com/reknit/reknit/services/agent/queue"
)

const chunkBytes = queue.ChunkBytes

// sequencesKey is the metadata in which a manifest lists where each chunk lies in the stream, so that a reader begins
// at any chunk. The library ignores it.
const sequencesKey = "reknit-sequences"

func streamName(bucket string) string { return "OBJ_" + bucket }

// metaSubjects is where the manifests of a bucket lie.
func metaSubjects(bucket string) string { return "$O." + bucket + ".M.>" }

func metaSubject(bucket, name string) string {
	return "$O." + bucket + ".M." + base64.URLEncoding.EncodeToString([]byte(name))
}

func chunkSubject(bucket, id string) string { return "$O." + bucket + ".C." + id }

// chunkID is unique for each put, so that two writers of one content never mix their chunks.
func chunkID(of piece) string { return of.chunks() + "." + nuid.Next() }

// manifest is what a store says of a part.
type manifest struct {
	info      jetstream.ObjectInfo
	sequences []uint64 // of the chunks in the stream; none where another writer did not tell them
}

// newInfo returns the manifest of content whose chunks are stored.
func newInfo(bucket, name, id string, size int, sum [sha256.Size]byte, sequences []uint64) jetstream.ObjectInfo {
	listed, _ := json.Marshal(sequences) // numbers never fail
	return jetstream.ObjectInfo{
		ObjectMeta: jetstream.ObjectMeta{
			Name: name, Metadata: map[string]string{sequencesKey: string(listed)},
			Opts: &jetstream.ObjectMetaOptions{ChunkSize: chunkBytes},
		},
		Bucket: bucket, NUID: id, Size: uint64(size), Chunks: uint32(len(sequences)),
		Digest: "SHA-256=" + base64.URLEncoding.EncodeToString(sum[:]),
	}
}

// parseManifest reads the answer to a direct get of a manifest. It returns nil where the bucket does not have the part.
func parseManifest(answer *nats.Msg) (*manifest, error) {
	switch status := answer.Header.Get("Status"); status {
	case "":
	case statusAbsent, "503": // no such message; no such bucket
		return nil, nil
	default:
		return nil, fmt.Errorf("direct get of a manifest: status %s %s", status, answer.Header.Get("Description"))
	}
	var info jetstream.ObjectInfo
	if err := json.Unmarshal(answer.Data, &info); err != nil {
		return nil, fmt.Errorf("manifest: %w", err)
	}
	if info.Deleted {
		return nil, nil
	}
	return &manifest{info, sequencesOf(info)}, nil
}

// sequencesOf returns where the chunks lie, if the manifest lists all of them and they have this package's size.
func sequencesOf(info jetstream.ObjectInfo) (sequences []uint64) {
	if info.Opts == nil || info.Opts.ChunkSize != chunkBytes {
		return nil
	}
	err := json.Unmarshal([]byte(info.Metadata[sequencesKey]), &sequences)
	if err != nil || int64(len(sequences)) != chunksOf(int64(info.Size)) {
		return nil
	}
	return sequences
}

func chunksOf(bytes int64) int64 { return (bytes + chunkBytes - 1) / chunkBytes }

// sumOf reads a digest, sha256: and 64 digits.
func sumOf(digest string) ([sha256.Size]byte, error) {
	digits, named := strings.CutPrefix(digest, "sha256:")
	sum, err := hex.DecodeString(digits)
	if err != nil || !named || len(sum) != sha256.Size {
		return [sha256.Size]byte{}, fmt.Errorf("expected sha256: and 64 digits, got %.80q", digest)
	}
	return [sha256.Size]byte(sum), nil
}

func digestOf(sum []byte) string { return "sha256:" + hex.EncodeToString(sum) }
