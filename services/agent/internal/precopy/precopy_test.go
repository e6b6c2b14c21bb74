package precopy

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/reknit/reknit/events"
	"github.com/reknit/reknit/services/agent/internal/transfer"
	"github.com/reknit/reknit/services/agent/machine"
	"github.com/reknit/reknit/services/agent/shards"
)

// trained is a state of one unit, of 5 bytes, that each step changes; a change has 2 bytes, and only the last one's
// is there.
type trained uint64

func (trained) Export(int, uint64) ([]byte, error) { return []byte("layer"), nil }

func (t trained) Change(_ int, step uint64) ([]byte, error) {
	if step != uint64(t) {
		return nil, fmt.Errorf("step %d: expected %d", step, t)
	}
	return []byte{byte(step), byte(step)}, nil
}

// given is what n1 gives n3.
func given(t *testing.T) *transfer.Exchange {
	store, err := shards.Serve(t.Context(), shards.StoreConfig{Bucket: "n1"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(store.Close)
	plan := events.Plan{Migration: events.Migration{ShardBytes: 1, Transfers: []events.Transfer{
		{To: "n3", Bytes: 2, Sources: []events.Source{{Node: "n1", Shards: events.Range{End: 2}}}},
	}}}
	node := transfer.Node{Context: t.Context(), Name: "n1", Store: store}
	return transfer.NewExchange(node, machine.Exchange{Plan: plan})
}

func TestAReceiverIsToldThatAStepIsGoneAndBeginsAnewAtALaterOne(t *testing.T) {
	nothing := make(chan struct{})
	close(nothing)
	sender := NewSender(t.Context(), given(t), 7, nothing, func() {})
	go sender.store()
	ask := func(step uint64, whole bool) events.PreCopyReply {
		return sender.Answer(events.PreCopyRequest{To: "n3", Step: step, Whole: whole})
	}
	leads := func(receiver string) bool {
		sender.mutex.Lock()
		defer sender.mutex.Unlock()
		client := sender.clients[receiver]
		return client != nil && client.phase == led
	}
	if answer := ask(6, true); !answer.Gone || answer.Newest != 7 {
		t.Errorf("step 6 after 7: %+v: expected that it is gone", answer)
	}
	if answer := ask(8, true); answer.Gone || len(answer.Units) > 0 {
		t.Errorf("step 8 after 7: %+v: expected to be asked again", answer)
	}
	sender.Capture(8, trained(8))
	if answer := ask(8, true); len(answer.Units) != 1 || answer.Units[0].Bytes != 5 {
		t.Errorf("step 8: %+v: expected the unit", answer)
	}
	if answer := ask(10, true); answer.Gone || len(answer.Units) > 0 {
		t.Errorf("step 10 after 8: %+v: expected to be asked again", answer)
	}
	sender.Capture(9, trained(9))
	sender.Capture(10, trained(10))
	if answer := ask(10, true); len(answer.Units) != 1 || leads("n2") || !leads("n3") {
		t.Errorf("step 10: %+v: expected the unit; leads n2: %t, n3: %t", answer, leads("n2"), leads("n3"))
	}
	sender.Capture(11, trained(11))
	if answer := ask(11, false); len(answer.Units) != 1 || answer.Units[0].Bytes != 2 {
		t.Errorf("step 11: %+v: expected its change", answer)
	}
	sender.Capture(12, trained(11)) // the state cannot tell
	if answer := ask(12, false); !answer.Gone || leads("n3") {
		t.Errorf("step 12: %+v, leads %t: expected that it cannot be pre-copied", answer, leads("n3"))
	}
}

func TestSharesOfAChangeCoverItAsThoseOfTheUnitDo(t *testing.T) {
	for seed := range uint64(500) {
		random := rand.New(rand.NewPCG(seed, 3))
		shardBytes, first, second := 1+random.Int64N(9), 1+random.IntN(9), 1+random.IntN(9)
		unit := shardBytes*int64(first+second) + random.Int64N(5)
		moved := events.Transfer{Sources: []events.Source{
			{Node: "n1", Shards: events.Range{End: first}},
			{Node: "n2", Shards: events.Range{First: first, End: first + second}},
		}}
		change, next := 1+random.Int64N(2*unit), int64(0)
		for _, source := range moved.Sources {
			from, to := shareOf(source.Shards, moved, shardBytes, unit, change)
			if from != next {
				t.Fatalf("seed %d: %s gives from byte %d on, expected %d", seed, source.Node, from, next)
			}
			next = to
		}
		if next != change {
			t.Fatalf("seed %d: all give %d of %d bytes", seed, next, change)
		}
	}
}

func TestAUnitThatWouldFillTheNodesMemoryIsNotAllotted(t *testing.T) {
	node := transfer.Node{Context: t.Context(), Name: "n3", MemoryBytes: 1 << 20}
	receiver := NewReceiver(t.Context(), transfer.NewExchange(node, machine.Exchange{}), 0, nil, nil)
	wanted := events.Transfer{Sources: []events.Source{{Node: "n1", Shards: events.Range{End: 1}}}}
	said := func(length int64) offered {
		part := events.Part{Digest: events.Digest(bytes.Repeat([]byte{1}, 1)), End: length}
		return offered{units: map[string][]events.PreCopied{"n1": {{Bytes: length, Parts: []events.Part{part}}}}}
	}
	if _, err := receiver.assemble(wanted, said(1<<20)); err != nil {
		t.Errorf("as long as the memory: %v", err)
	}
	_, err := receiver.assemble(wanted, said(1<<60))
	if err == nil || !strings.Contains(err.Error(), "n1: bytes: expected at most the node's memory, 1048576") {
		t.Errorf("longer than the memory: %v", err)
	}
}
