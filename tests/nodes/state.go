package nodes

import (
	"context"
	"crypto/sha256"
	"fmt"
	"math/rand/v2"

	"github.com/reknit/reknit/events"
	"github.com/reknit/reknit/services/agent/shards"
)

// State is what trainers hold: so many bytes of a seed, in parts.
type State struct {
	Seed             uint64
	Bytes, PartBytes int64
}

// Each calls a function with one part after the other; its bytes are good until it returns.
func (s State) Each(visit func(first int64, data []byte) error) error {
	random, data := rand.NewChaCha8([32]byte{byte(s.Seed)}), make([]byte, s.PartBytes)
	for first := int64(0); first < s.Bytes; first += s.PartBytes {
		data = data[:min(s.Bytes-first, s.PartBytes)]
		if _, err := random.Read(data); err != nil {
			return err
		}
		if err := visit(first, data); err != nil {
			return err
		}
	}
	return nil
}

// Put stores a part under its digest.
type Put func(ctx context.Context, digest string, part []byte) error

// Hold makes the state and stores it. It returns the parts that are there, also when it fails.
func (s State) Hold(ctx context.Context, put Put) (parts []shards.Part, err error) {
	err = s.Each(func(first int64, data []byte) error {
		digest := events.Digest(data)
		err := put(ctx, digest, data)
		if err == nil {
			parts = append(parts, shards.Part{Digest: digest, First: first, End: first + int64(len(data))})
		}
		return err
	})
	return parts, err
}

// Digest is that of all bytes of the state.
func (s State) Digest() string {
	hash := sha256.New()
	_ = s.Each(func(_ int64, data []byte) error { hash.Write(data); return nil }) // neither of them fails
	return fmt.Sprintf("sha256:%x", hash.Sum(nil))
}
