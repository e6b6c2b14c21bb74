package shards

import (
	"crypto/sha256"
	"encoding/json"
	"reflect"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"
)

func FuzzManifest(f *testing.F) {
	sum := sha256.Sum256([]byte("part"))
	part := piece{digest: digestOf(sum[:])}
	whole, err := json.Marshal(newInfo("b", part.name(), chunkID(part), 3*chunkBytes-1, sum, []uint64{3, 4, 9}))
	if err != nil {
		f.Fatal(err)
	}
	f.Add("", whole)
	f.Add("404", []byte(nil))
	f.Add("", []byte(`{"deleted": true}`))
	f.Add("", []byte(`{"size": 18446744073709551615, "options": {"max_chunk_size": 524288}, "metadata": {"reknit-sequences": "[1]"}}`))
	f.Fuzz(func(t *testing.T, status string, data []byte) {
		answer := &nats.Msg{Header: nats.Header{"Status": {status}}, Data: data}
		found, err := parseManifest(answer)
		if err != nil || found == nil {
			return
		}
		if count := int64(len(found.sequences)); count > 0 && count != chunksOf(int64(found.info.Size)) {
			t.Errorf("%d places of %d bytes", count, found.info.Size)
		}
		text, err := json.Marshal(found.info)
		if err != nil {
			t.Fatal(err)
		}
		back, err := parseManifest(&nats.Msg{Data: text})
		if err != nil || back == nil || !reflect.DeepEqual(back.sequences, found.sequences) {
			t.Errorf("%s came back as %+v, %v", text, back, err)
		}
	})
}

// A reader's words of a piece name no other object than the piece's own, and no range beyond its part.
func FuzzWant(f *testing.F) {
	f.Add("sha256:0a", 0)
	f.Add("sha256:0a.0-524288", 524288)
	f.Add("sha256:0a.524288-524290 1 a.1", 524290)
	f.Fuzz(func(t *testing.T, said string, size int) {
		wanted, push, ok := parseWant(said)
		if !ok {
			return
		}
		if name, _, _ := strings.Cut(said, " "); wanted.name() != name {
			t.Errorf("%q is taken for %q", said, wanted.name())
		}
		if data, has := wanted.of(make([]byte, min(max(size, 0), 4*chunkBytes))); has && len(data) > max(size, 0) {
			t.Errorf("%q is of %d bytes, of %d", said, len(data), size)
		}
		if push.chunks > maxPartBytes/chunkBytes {
			return // more than any piece has
		}
		for _, to := range push.to("_INBOX.name") {
			if tokens := strings.Split(to, "."); len(tokens) != 4 || tokens[0]+"."+tokens[1] != "pushed.name" || strings.ContainsAny(to, " *>") {
				t.Errorf("%q has chunks go to %q", said, to)
			}
		}
	})
}

func FuzzDigest(f *testing.F) {
	sum := sha256.Sum256(nil)
	f.Add(digestOf(sum[:]))
	f.Add("sha256:")
	f.Fuzz(func(t *testing.T, text string) {
		sum, err := sumOf(text)
		if err != nil {
			return
		}
		if back, err := sumOf(digestOf(sum[:])); err != nil || back != sum {
			t.Errorf("%q came back as %x, %v", text, back, err)
		}
	})
}
