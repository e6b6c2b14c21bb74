// Package shards moves shard parts between nodes over JetStream object stores. Its README tells how.
package shards

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"hash/crc32"
	"slices"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nuid"
)

// chunkBytes is the size of a message. 512 KiB costs the least processor time a byte of 128 KiB to 1 MiB (measured).
const chunkBytes = 512 << 10

// Metadata in which a manifest lists something of each chunk; the library ignores it.
const (
	sequencesKey = "reknit-sequences" // where it lies in the stream, so that a reader begins at any chunk
	checksumsKey = "reknit-crc32c"    // which chunk of a corrupt part is to blame: no proof of anything, the digest is that
)

// castagnoli is the polynomial that processors know.
var castagnoli = crc32.MakeTable(crc32.Castagnoli)

func checksum(chunk []byte) uint32 { return crc32.Checksum(chunk, castagnoli) }

func streamName(bucket string) string { return "OBJ_" + bucket }

func metaSubject(bucket, name string) string {
	return "$O." + bucket + ".M." + base64.URLEncoding.EncodeToString([]byte(name))
}

func chunkSubject(bucket, id string) string { return "$O." + bucket + ".C." + id }

// directSubject is where a bucket's messages are asked for without a consumer.
func directSubject(bucket string) string { return "$JS.API.DIRECT.GET." + streamName(bucket) }

// chunkID is unique for each put, so that two writers of one content never mix their chunks.
func chunkID(sum [sha256.Size]byte) string { return hex.EncodeToString(sum[:]) + "." + nuid.Next() }

// object is what a manifest says.
type object struct {
	info      jetstream.ObjectInfo
	sequence  uint64    // of the manifest in the stream
	stored    time.Time // by the server's clock
	sequences []uint64  // of the chunks; none where another writer did not tell them
	checksums []uint32  // of the chunks; the same
}

// newInfo returns the manifest of content whose chunks are stored.
func newInfo(bucket, digest, id string, data []byte, sum [sha256.Size]byte, sequences []uint64) ([]byte, error) {
	var checksums []uint32
	for chunk := range slices.Chunk(data, chunkBytes) {
		checksums = append(checksums, checksum(chunk))
	}
	listed := map[string]string{}
	for key, list := range map[string]any{sequencesKey: sequences, checksumsKey: checksums} {
		text, err := json.Marshal(list)
		if err != nil {
			return nil, err
		}
		listed[key] = string(text)
	}
	return json.Marshal(jetstream.ObjectInfo{
		ObjectMeta: jetstream.ObjectMeta{
			Name: digest, Metadata: listed,
			Opts: &jetstream.ObjectMetaOptions{ChunkSize: chunkBytes},
		},
		Bucket: bucket, NUID: id, Size: uint64(len(data)), Chunks: uint32(len(sequences)),
		Digest: "SHA-256=" + base64.URLEncoding.EncodeToString(sum[:]),
	})
}

// parseObject reads the answer to a direct get of a manifest. It returns nil where the bucket does not hold one.
func parseObject(answer *nats.Msg) (*object, error) {
	switch status := answer.Header.Get("Status"); status {
	case "":
	case "404", "503": // no such message; no such bucket
		return nil, nil
	default:
		return nil, fmt.Errorf("direct get of a manifest: status %s %s", status, answer.Header.Get("Description"))
	}
	var found object
	if err := json.Unmarshal(answer.Data, &found.info); err != nil {
		return nil, fmt.Errorf("manifest: %w", err)
	}
	var err error
	if found.sequence, err = strconv.ParseUint(answer.Header.Get(jetstream.SequenceHeader), 10, 64); err != nil {
		return nil, fmt.Errorf("sequence of a manifest: %w", err)
	}
	if found.stored, err = time.Parse(time.RFC3339Nano, answer.Header.Get(jetstream.TimeStampHeaer)); err != nil {
		return nil, fmt.Errorf("time of a manifest: %w", err)
	}
	found.sequences, found.checksums = listed[uint64](&found, sequencesKey), listed[uint32](&found, checksumsKey)
	return &found, nil
}

// listed returns what the manifest lists of the chunks where it does so of all of them, in the layout of this package.
func listed[T any](o *object, key string) []T {
	if o.info.Opts == nil || o.info.Opts.ChunkSize != chunkBytes {
		return nil
	}
	var list []T
	if json.Unmarshal([]byte(o.info.Metadata[key]), &list) != nil || int64(len(list)) != chunksOf(int64(o.info.Size)) {
		return nil
	}
	return list
}

func chunksOf(bytes int64) int64 { return (bytes + chunkBytes - 1) / chunkBytes }
