package machine

import (
	"slices"
	"testing"

	"github.com/reknit/reknit/events"
)

func TestEachNodeReadsOfASnapshotWhatItCanAndFetchesTheRest(t *testing.T) {
	request := lossOfOne()
	plan := &request.Proposal.Plan
	plan.Pipelines = []events.Pipeline{
		{MicroBatches: 1, Stages: []events.Stage{stage("n1", 0, 6)}},
		{MicroBatches: 1, Stages: []events.Stage{stage("n3", 0, 6)}},
	}
	plan.Nodes, plan.Data = members("n1", "n3"), events.Data{GlobalBatch: 2, MicroBatch: 1}
	request.Proposal.Classes, request.Current = nil, nil
	request.Snapshot = true
	request.Holders = []events.Holder{held("n1", 0, 6), held("n3", 0, 5)}
	restoration, err := Restore(request)
	if err != nil {
		t.Fatal(err)
	}
	if err := restoration.Validate(); err != nil {
		t.Fatal(err)
	}
	itself, fetched := map[string][]int{}, map[string][]int{}
	for _, transfer := range restoration.Plan.Migration.Transfers {
		if transfer.Sources[0].Node == transfer.To {
			itself[transfer.To] = append(itself[transfer.To], transfer.Unit)
		} else {
			fetched[transfer.To] = append(fetched[transfer.To], transfer.Unit)
		}
	}
	if !slices.Equal(itself["n1"], []int{0, 1, 2, 3, 4, 5}) || !slices.Equal(itself["n3"], []int{0, 1, 2, 3, 4}) {
		t.Errorf("read by whom: %v: expected what each can", itself)
	}
	if !slices.Equal(fetched["n3"], []int{5}) || len(fetched["n1"]) > 0 {
		t.Errorf("fetched of others: %v: expected unit 5 by n3", fetched)
	}
	if drops := restoration.Plan.Migration.Drops; len(drops) > 0 {
		t.Errorf("drops of what is in a snapshot: %v", drops)
	}
}
