package agent

import (
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/reknit/reknit/events"
)

// Two receivers, two sources: the parts of the layer cover what each receiver is to take from each source, byte for byte.
func TestPartsOfAllSourcesCoverALayerWithoutGapOrOverlap(t *testing.T) {
	for seed := range uint64(500) {
		random := rand.New(rand.NewPCG(seed, 2))
		shardBytes := 1 + random.Int64N(3*partBytes)
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
				first, end := byteRange(source.Shards, transfer, shardBytes, bytes)
				tiles, err := tile(partsOf(3, migration, bytes), first, end)
				if err != nil {
					t.Fatalf("seed %d: %s from %s: %v", seed, transfer.To, source.Node, err)
				}
				for _, part := range tiles {
					if part.First != next || part.End-part.First > partBytes {
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

func TestATransferWaitsForEverySourcesManifestOfTheRightStep(t *testing.T) {
	transfer := events.Transfer{Unit: 1, Sources: []events.Source{{Node: "n1"}, {Node: "n2"}}}
	offers := []events.Offer{{Node: "n1", Unit: 1, Step: 7}, {Node: "n2", Unit: 1, Step: 6}, {Node: "n2", Unit: 2, Step: 7}}
	if complete(offers, transfer, 7) != nil {
		t.Fatal("n2 has offered layer 1 only at another step")
	}
	if found := complete(append(offers, events.Offer{Node: "n2", Unit: 1, Step: 7}), transfer, 7); len(found) != 2 || found[1].Node != "n2" {
		t.Fatalf("got %+v", found)
	}
}

func TestALayerThatWouldFillTheNodesMemoryIsNotAllotted(t *testing.T) {
	taker := &moves{Session: &Session{config: Config{MemoryBytes: 1 << 20}}}
	transfer := events.Transfer{Sources: []events.Source{{Node: "n1", Shards: events.Range{End: 1}}}}
	said := func(bytes int64) trails {
		part := events.Part{Digest: events.Digest(nil), End: bytes}
		return trails{layers: map[string][]events.PreCopied{"n1": {{Bytes: bytes, Parts: []events.Part{part}}}}}
	}
	follower := &pursuit{moves: taker}
	if _, err := follower.assemble(transfer, said(1<<20)); err != nil {
		t.Errorf("as long as the memory: %v", err)
	}
	if _, err := follower.assemble(transfer, said(1<<60)); err == nil || !strings.Contains(err.Error(), "n1: bytes: expected at most the node's memory, 1048576") {
		t.Errorf("longer than the memory: %v", err)
	}
	taker.view.offers = []events.Offer{{Node: "n1", Bytes: 1 << 60, Digest: events.Digest(nil)}}
	if _, err := taker.request(t.Context(), nil, transfer, nil); err == nil || !strings.Contains(err.Error(), "n1: bytes: expected at most") {
		t.Errorf("offered longer than the memory: %v", err)
	}
}
