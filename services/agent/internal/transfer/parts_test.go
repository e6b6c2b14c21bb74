package transfer

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/reknit/reknit/events"
	"github.com/reknit/reknit/services/agent/shards"
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

func TestTheDigestOfAUnitFollowsFromThoseOfItsParts(t *testing.T) {
	unit := make([]byte, 3*PartBytes+77)
	for i := range unit {
		unit[i] = byte(i * i >> 9)
	}
	source := func(node string, first, end int) events.Source {
		return events.Source{Node: node, Shards: events.Range{First: first, End: end}}
	}
	for _, shardBytes := range []int64{PartBytes, PartBytes / 4} {
		migration := events.Migration{ShardBytes: shardBytes, Transfers: []events.Transfer{
			{Unit: 3, To: "n9", Sources: []events.Source{source("n1", 0, 1), source("n2", 1, 13)}},
		}}
		parts := partsOf(3, migration, int64(len(unit)))
		for i, part := range parts {
			parts[i].Digest = events.Digest(unit[part.First:part.End])
		}
		if digestOf(unit, parts) != events.DigestOfUnit(unit) {
			t.Errorf("shards of %d bytes: expected the digest of the unit", shardBytes)
		}
	}
}

func TestABlockThatIsAPartIsNotHashedAgain(t *testing.T) {
	unit := make([]byte, 2*PartBytes)
	parts := partsOf(3, events.Migration{}, int64(len(unit)))
	var blocks []string
	for i := range parts {
		parts[i].Digest = events.Digest([]byte{byte(i)}) // as if these were its bytes
		blocks = append(blocks, parts[i].Digest)
	}
	if digestOf(unit, parts) != events.DigestOfBlocks(blocks) {
		t.Error("expected the digests of the parts to be taken for those of the blocks")
	}
}

func TestAGapInTheOfferedPartsIsNamed(t *testing.T) {
	_, err := tile([]events.Part{{First: 0, End: 4}, {First: 5, End: 9}}, 0, 9)
	if err == nil || err.Error() != "no part offered from byte 4 on" {
		t.Fatalf("got %v", err)
	}
}

func TestOfPartsThatAreAsOfferedTheOneThatNobodyElseOffersIsInDoubt(t *testing.T) {
	same := events.Part{Digest: events.Digest([]byte("a")), First: 0, End: 1}
	lie := events.Part{Digest: events.Digest([]byte("b")), First: 1, End: 2}
	truth := events.Part{Digest: events.Digest([]byte("c")), First: 1, End: 2}
	offers := []events.Offer{
		{Node: "n1", Parts: []events.Part{same, truth}}, {Node: "n2", Parts: []events.Part{same, lie}},
		{Node: "n3", Parts: []events.Part{same, truth}},
	}
	taken := func(parts ...events.Part) (taken []shards.Part) {
		for _, part := range parts {
			taken = append(taken, shards.Part{Digest: part.Digest, First: part.First, End: part.End})
		}
		return taken
	}
	if got := alone(taken(same, lie), offers); !slices.Equal(got, []string{"n2"}) {
		t.Errorf("got %v, expected n2", got)
	}
	if got := alone(taken(same, truth), offers); !slices.Equal(got, []string{"n1", "n2", "n3"}) {
		t.Errorf("all parts are offered by several and the unit is another: got %v, expected all", got)
	}
}
