package machine

import (
	"fmt"
	"slices"
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
		Proposal: events.Proposal{Negotiation: "g2", Plan: events.Plan{Cluster: "c", Generation: 2, Parent: "p", Nodes: members("new"),
			Data:      events.Data{GlobalBatch: 1, MicroBatch: 1},
			Pipelines: []events.Pipeline{{MicroBatches: 1, Stages: []events.Stage{stage("new", 0, 1)}}}}},
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

// fetches restores once, as the negotiator asks for it, and returns how long that is predicted to take and whom it asks.
func fetches(t *testing.T, m *Machine, request events.RestorationRequest) (seconds float64, givers []string) {
	t.Helper()
	said := hear(t, m, events.RestorationAsked, &request)
	restored, err := events.Open[events.Restoration](said[0])
	if err != nil || said[0].Kind != events.RestorationPlanned {
		t.Fatal(said, err)
	}
	for _, source := range restored.Plan.Migration.Transfers[0].Sources {
		givers = append(givers, source.Node)
	}
	return restored.Plan.Predicted.TransitionSeconds, givers
}

// A giver that gives nothing earns no words, so that nobody could say otherwise.
func TestAGiverThatWasLateOnceIsAskedAgain(t *testing.T) {
	for late, want := range map[float64]int{5: 3, 60: 6, 1e9: 6} { // fetches of a second: 5 s are 0.6 after three, 60 s 0.9 after six
		m := New("c", Settings{})
		m.toldLate("n1", late, "a", "b", "c")
		without := 0
		for ; without <= want; without++ {
			if _, givers := fetches(t, m, fromTwo(1e8)); slices.Contains(givers, "n1") {
				break
			}
		}
		if without != want {
			t.Errorf("late by %v s once, it is left out of %d fetches of a second or more: expected %d", late, without, want)
		}
		m.toldLate("n1", 0.01, "a", "b", "c")
		if share := shareOf(t, m, "n1"); share < 0.49 {
			t.Errorf("late by %v s once, and no more, it gives %v", late, share)
		}
	}
}

func TestAGiverIsAsLateAsItWasWhileNobodyNeedsWhatItHolds(t *testing.T) {
	m := New("c", Settings{})
	m.toldLate("n1", 5, "a", "b", "c")
	for range 9 {
		request := fromTwo(1e8)
		request.Units = []int64{1e8, 1e8}
		request.Proposal.Plan.Pipelines[0].Stages[0] = stage("new", 0, 2)
		request.Holders = []events.Holder{held("n1", 1, 2), held("n2", 0, 1), held("new", 1, 2)}
		fetches(t, m, request)
	}
	if _, givers := fetches(t, m, fromTwo(1e8)); slices.Contains(givers, "n1") {
		t.Errorf("a fetch of a second asks %v, of which n1 was 5 s late when it was asked last", givers)
	}
}

// One of two or three who lies makes nobody wait longer than an honest one says, and two of four or five do not.
func TestReceiversThatLieOfAGiverMakeItNoLaterThanHonestOnesSay(t *testing.T) {
	for all := 2; all <= newestStarts; all++ {
		m := New("c", Settings{})
		for i := range all {
			seconds := 0.01
			if i < all/2 {
				seconds = 1e9
			}
			m.toldLate("n1", seconds, fmt.Sprint("r", i))
		}
		if share := shareOf(t, m, "n1"); share < 0.49 {
			t.Errorf("of %d receivers %d lie, and the giver gives %v", all, all/2, share)
		}
	}
}

func TestOneReceiverThatLiesOfAGiverAgainAndAgainIsOneWord(t *testing.T) {
	m := New("c", Settings{})
	m.toldLate("n1", 0.01, "a", "b")
	for range 10 {
		m.toldLate("n1", 1e9, "liar")
	}
	if share := shareOf(t, m, "n1"); share < 0.49 {
		t.Errorf("it gives %v", share)
	}
}

func TestALoneReceiversWordCostsAFetchNoMoreThanALittle(t *testing.T) {
	for _, bytes := range []int64{1 << 16, 1e6, 1e7, 1e8, 1e9} {
		honest, liar, request := New("c", Settings{}), New("c", Settings{}), fromTwo(bytes)
		request.Links = []events.Link{{Measurement: events.Measurement{From: "n2", To: "new", RoundTripSeconds: 0.01,
			BandwidthBytesPerSecond: 1e7}}} // a tenth of n1's
		liar.toldLate("n1", 1e9, "liar")
		before, _ := fetches(t, honest, request)
		after, _ := fetches(t, liar, request)
		if after > before+mostOfOne {
			t.Errorf("%d bytes take %v s, and %v s once one receiver lied: expected at most %v s more", bytes, before, after, mostOfOne)
		}
	}
	m := New("c", Settings{})
	m.toldLate("n1", 0.03, "a") // 0.02 s more than a round trip
	if share := shareOf(t, m, "n1"); share < 0.485 || share > 0.495 {
		t.Errorf("who begins 0.02 s later gives %v of what takes half a second, expected 0.49", share)
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
