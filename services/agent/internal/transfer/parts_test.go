package transfer

import (
	"math/rand/v2"
	"testing"

	"github.com/reknit/reknit/events"
)

// Two receivers, two sources: the parts of the unit cover what each receiver is to take from each source, byte for
// byte.
func TestPartsOfAllSourcesCoverAUnitWithoutGapOrOverlap(t *testing.T) {
	for seed := range uint64(500) {
		random := rand.New(rand.NewPCG(seed, 2))
		shardBytes := 1 + random.Int64N(3*PartBytes)
		shards := 2 + random.IntN(5)
		bytes := int64(shards)*shardBytes - random.Int64N(shardBytes) + random.Int64N(100) // a header makes it longer
		migration := events.Migration{ShardBytes: shardBytes}
		for _, to := range []string{"n8", "n9"} {
			cut := 1 + random.IntN(shards-1)
			migration.Transfers = append(migration.Transfers, events.Transfer{Unit: 3, To: to, Sources: []events.Source{
				{Node: "n1", Shards: events.Range{First: 0, End: cut}}, {Node: "n2", Shards: events.Range{First: cut, End: shards}},
			}})
		}
		for _, transfer := range migration.Transfers {
			next := int64(0)
			for _, source := range transfer.Sources {
				first, end := ByteRange(source.Shards, transfer, shardBytes, bytes)
				tiles, err := tile(partsOf(3, migration, bytes), first, end)
				if err != nil {
					t.Fatalf("seed %d: %s from %s: %v", seed, transfer.To, source.Node, err)
				}
				for _, part := range tiles {
					if part.First != next || part.End-part.First > PartBytes {
						t.Fatalf("seed %d: part %+v where byte %d was next", seed, part, next)
					}
					next = part.End
				}
			}
			if next != bytes {
				t.Fatalf("seed %d: %s gets %d of %d bytes", seed, transfer.To, next, bytes)
			}
		}
	}
}

func TestAGapInTheOfferedPartsIsNamed(t *testing.T) {
	_, err := tile([]events.Part{{First: 0, End: 4}, {First: 5, End: 9}}, 0, 9)
	if err == nil || err.Error() != "no part offered from byte 4 on" {
		t.Fatalf("got %v", err)
	}
}
