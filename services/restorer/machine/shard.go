package machine

import (
	"fmt"
	"slices"
)

// Settings are the choices of a restorer. The zero value has the defaults.
type Settings struct{ ShardSize ShardSize }

// ShardSize is how it is decided into how large shards a model is cut, of which each comes from one giver.
type ShardSize string

const (
	// Parts cuts the largest unit into about shardsPerUnit, whatever the links are. It is the default.
	Parts ShardSize = "parts"
	// Chain takes the largest size with which a fetch takes hardly longer than if it were divided at will, as Chaos does (section
	// III-A, theorem 1).
	Chain ShardSize = "chain"
)

// ShardSizeOf returns the one of a name.
func ShardSizeOf(name string) (ShardSize, error) {
	if size := ShardSize(name); size == Parts || size == Chain {
		return size, nil
	}
	return "", fmt.Errorf("expected %s or %s, got %.80q", Chain, Parts, name)
}

const (
	leastShardBytes = 4 << 10
	mostShardBytes  = 8 << 20
	shardsPerUnit   = 256 // of the largest: fine enough to share it out within half a per cent
)

// shardBytes cuts the largest unit into about shardsPerUnit, in a power of two within bounds.
func (r *restoration) shardBytes() int64 {
	sizes, largest := chain(), slices.Max(r.Units)
	enough := slices.IndexFunc(sizes, func(size int64) bool { return size*shardsPerUnit >= largest })
	if enough < 0 {
		return mostShardBytes
	}
	return sizes[enough]
}

// chain is the sizes that a shard may have, each twice the one before.
func chain() (sizes []int64) {
	for size := int64(leastShardBytes); size <= mostShardBytes; size *= 2 {
		sizes = append(sizes, size)
	}
	return sizes
}
