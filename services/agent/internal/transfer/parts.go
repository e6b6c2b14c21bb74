package transfer

import (
	"fmt"
	"slices"

	"github.com/reknit/reknit/events"
)

// PartBytes is the length of a part: large enough that its request does not count, small enough to be fetched again.
const PartBytes = 8 << 20

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

// partsOf cuts a unit into parts, at every border between what two nodes give. All its holders cut it alike, so that
// each can give what another was to.
func partsOf(unit int, migration events.Migration, bytes int64) []events.Part {
	borders := []int64{0, bytes}
	for _, transfer := range migration.Transfers {
		for _, source := range transfer.Sources {
			if transfer.Unit == unit {
				first, _ := ByteRange(source.Shards, transfer, migration.ShardBytes, bytes)
				borders = append(borders, first)
			}
		}
	}
	slices.Sort(borders)
	var parts []events.Part
	for i, end := range borders[1:] {
		for first := borders[i]; first < end; first += PartBytes {
			parts = append(parts, events.Part{First: first, End: min(first+PartBytes, end)})
		}
	}
	return parts
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
