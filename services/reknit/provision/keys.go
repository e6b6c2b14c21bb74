package provision

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	"github.com/nats-io/nkeys"

	"github.com/reknit/reknit/services/reknit/internal/files"
)

// keyAt returns the key whose seed is in a file, a new one where there is no file.
func keyAt(file string, create func() (nkeys.KeyPair, error)) (nkeys.KeyPair, error) {
	seed, err := os.ReadFile(file)
	if err == nil {
		key, err := nkeys.FromSeed(seed)
		if err != nil {
			return nil, fmt.Errorf("%s: expected the seed of a key: %w", file, err)
		}
		return key, nil
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	key, err := create()
	if err != nil {
		return nil, err
	}
	if seed, err = key.Seed(); err != nil {
		return nil, err
	}
	return key, files.Replace(file, seed, 0o600)
}

func public(key nkeys.KeyPair) string {
	name, err := key.PublicKey()
	if err != nil {
		panic(err) // it was made, or read from a seed, a moment ago
	}
	return name
}

func readRevoked(file string) (map[string]int64, error) {
	revoked := map[string]int64{}
	data, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return revoked, nil
	}
	if err == nil {
		err = json.Unmarshal(data, &revoked)
	}
	if err == nil && revoked == nil {
		err = errors.New("expected keys and when they were revoked, got null")
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	return revoked, nil
}

// forever is after any token is written.
var forever = time.Date(9999, time.December, 31, 0, 0, 0, 0, time.UTC)

// end notes that no token of a key is good any more, not even one that an institution's key signs later: anybody who comes back has another
// key.
func (i *installation) end(key string) error { return i.endBefore(key, forever) }

// endBefore notes that tokens of a key that were written until then are no good any more.
func (i *installation) endBefore(key string, then time.Time) error {
	i.revoked[key] = max(i.revoked[key], then.Unix())
	data, err := json.MarshalIndent(i.revoked, "", "  ")
	if err != nil {
		return err
	}
	return files.Replace(i.path(operatorFolder, "revoked.json"), data, 0o600)
}
