package machine

import (
	"fmt"
	"testing"

	"github.com/reknit/reknit/events"
)

// toldLate has a giver be told late by receivers of its bytes, each in a transfer of its own.
func (m *Machine) toldLate(giver string, seconds float64, receivers ...string) {
	for _, receiver := range receivers {
		m.learn(&watch{Givers: map[int][]string{0: {giver}}}, events.Receipt{Node: receiver,
			Sources: []events.Received{{From: giver, Bytes: 1, BytesPerSecond: 1, StartSeconds: seconds}}})
	}
}

// fromTwo asks for a fetch of so many bytes that two holders have, over links of 100 MB/s.
func fromTwo(bytes int64) events.RestorationRequest {
	return events.RestorationRequest{
		Negotiation: "g2", Units: []int64{bytes}, Holders: []events.Holder{held("n1", 0, 1), held("n2", 0, 1)},
		Usual: &events.Usual{RoundTripSeconds: 0.01, BandwidthBytesPerSecond: 1e8},
		Proposal: events.Proposal{Plan: events.Plan{Nodes: members("new"),
			Pipelines: []events.Pipeline{{Stages: []events.Stage{stage("new", 0, 1)}}}}},
	}
}

func shareOf(t *testing.T, m *Machine, giver string) (share float64) {
	t.Helper()
	restoration, err := m.settings.restore(fromTwo(1e8), m.state.Starts)
	if err != nil {
		t.Fatal(err)
	}
	transfer := restoration.Plan.Migration.Transfers[0]
	for _, source := range transfer.Sources {
		if source.Node == giver {
			share += float64(source.Shards.Count()) * float64(restoration.Plan.Migration.ShardBytes) / float64(transfer.Bytes)
		}
	}
	return share
}

func TestAGiverThatTookLongToBeginGivesLess(t *testing.T) {
	m := New("c", Settings{})
	if share := shareOf(t, m, "n1"); share < 0.49 || share > 0.51 {
		t.Errorf("of two givers alike one gives %v", share)
	}
	m.toldLate("n1", 0.41, "a", "b", "c") // 0.4 s more than a round trip
	if share := shareOf(t, m, "n1"); share < 0.29 || share > 0.31 {
		t.Errorf("who begins 0.4 s later gives %v, expected 0.3", share)
	}
	m.toldLate("n1", 0.01, "a", "b", "c")
	if share := shareOf(t, m, "n1"); share < 0.49 || share > 0.51 {
		t.Errorf("who begins at once again gives %v", share)
	}
}

func TestOneReceiverThatLiesOfAGiverDecidesNothing(t *testing.T) {
	m := New("c", Settings{})
	m.toldLate("n1", 0.01, "a", "b")
	for range 10 {
		m.toldLate("n1", 1e9, "liar")
	}
	if share := shareOf(t, m, "n1"); share < 0.49 {
		t.Errorf("it gives %v", share)
	}
}

func TestOfEachGiverFewReceiversWordsAreKeptAndOfStrangersNone(t *testing.T) {
	m := New("c", Settings{})
	for i := range 100 {
		m.toldLate("n1", 1, fmt.Sprint("r", i))
		m.toldLate(fmt.Sprint("gone", i), 1, "r")
	}
	m.learn(&watch{Givers: map[int][]string{0: {"n1"}}}, events.Receipt{Node: "r",
		Sources: []events.Received{{From: "stranger", StartSeconds: 1}, {From: "", StartSeconds: 1}}})
	request := fromTwo(1)
	m.forgetOthers(&request)
	if len(m.state.Starts) != 1 || len(m.state.Starts["n1"]) != newestStarts {
		t.Errorf("kept %v", m.state.Starts)
	}
}
