package transfer

import (
	"fmt"
	"slices"

	"github.com/reknit/reknit/events"
)

// PartBytes is the length of a part: large enough that its request does not count, small enough to be fetched again. A
// part is a block of its unit, so that each byte is hashed once.
const PartBytes = events.BlockBytes

// ShardsOf returns which shards of a transfer a node gives.
func ShardsOf(node string, transfer events.Transfer) (shards events.Range, gives bool) {
	for _, source := range transfer.Sources {
		if source.Node == node {
			return source.Shards, true
		}
	}
	return events.Range{}, false
}

// ByteRange turns a range of shards into bytes of the unit as it really is: the last shard takes what is left, for a
// unit's canonical form is a little longer than its parameters.
func ByteRange(shards events.Range, transfer events.Transfer, shardBytes, bytes int64) (first, end int64) {
	first, end = int64(shards.First)*shardBytes, int64(shards.End)*shardBytes
	if shards.End == transfer.Sources[len(transfer.Sources)-1].Shards.End {
		end = bytes
	}
	return min(first, bytes), min(end, bytes)
}

// partsOf cuts a unit into its blocks, and these at every border between what two nodes give. All its holders cut it
// alike, so that each can give what another was to.
func partsOf(unit int, migration events.Migration, bytes int64) []events.Part {
	borders := []int64{bytes}
	for block := int64(0); block < bytes; block += PartBytes {
		borders = append(borders, block)
	}
	for _, transfer := range migration.Transfers {
		for _, source := range transfer.Sources {
			if transfer.Unit == unit {
				first, _ := ByteRange(source.Shards, transfer, migration.ShardBytes, bytes)
				borders = append(borders, first)
			}
		}
	}
	slices.Sort(borders)
	borders = slices.Compact(borders)
	var parts []events.Part
	for i, end := range borders[1:] {
		parts = append(parts, events.Part{First: borders[i], End: end})
	}
	return parts
}

// digestOf returns the digest of a unit, the digests of some of whose parts are known: blocks that are parts are not
// hashed again.
func digestOf(unit []byte, parts []events.Part) string {
	type span struct{ first, end int64 }
	known := map[span]string{}
	for _, part := range parts {
		known[span{part.First, part.End}] = part.Digest
	}
	var blocks []string
	for first, bytes := int64(0), int64(len(unit)); first < bytes; first += events.BlockBytes {
		block := span{first, min(first+events.BlockBytes, bytes)}
		digest, there := known[block]
		if !there {
			digest = events.Digest(unit[block.first:block.end])
		}
		blocks = append(blocks, digest)
	}
	return events.DigestOfBlocks(blocks)
}

// tile picks the parts that cover a range of bytes without a gap.
func tile(parts []events.Part, from, to int64) ([]events.Part, error) {
	var tiles []events.Part
	for at := from; at < to; {
		best := events.Part{End: at}
		for _, part := range parts {
			if part.First == at && part.End <= to && part.End > best.End {
				best = part
			}
		}
		if best.End == at {
			return nil, fmt.Errorf("no part offered from byte %d on", at)
		}
		tiles = append(tiles, best)
		at = best.End
	}
	return tiles, nil
}
