package machine

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/reknit/reknit/events"
)

const stopStep = 12

// transfer is one under way: n4 and n5 give n1 unit 2, and n5, n6 and n4 give n3 unit 3.
type transfer struct {
	*testing.T
	machine *Machine
}

func start(t *testing.T) *transfer {
	t.Helper()
	plan := lossOfOne().Proposal.Plan
	plan.Migration = events.Migration{ShardBytes: 3000, Transfers: []events.Transfer{
		{Unit: 2, To: "n1", Bytes: 9000, Sources: sources("n4", "n5")},
		{Unit: 3, To: "n3", Bytes: 9000, Sources: sources("n5", "n6", "n4")},
	}}
	m := New("c", Settings{})
	hear(t, m, events.Scheduled, &events.Schedule{Negotiation: "g2", StopStep: stopStep, Plan: plan})
	return &transfer{t, m}
}

func sources(nodes ...string) []events.Source {
	var list []events.Source
	for i, node := range nodes {
		list = append(list, events.Source{Node: node, Shards: events.Range{First: i, End: i + 1}})
	}
	return list
}

// offer has a node offer a unit, which a word stands for.
func (t *transfer) offer(node string, unit int, step uint64, word string) string {
	t.Helper()
	return t.told(hear(t.T, t.machine, events.ShardOffered, &events.Offer{
		Negotiation: "g2", Node: node, Unit: unit, Step: step, Digest: events.Digest([]byte(word)), Bytes: 9000,
	}))
}

// offers has all givers offer what they are to give.
func (t *transfer) offers() {
	t.Helper()
	for _, node := range []string{"n4", "n5", "n6"} {
		for unit := 2; unit <= 3; unit++ {
			if said := t.offer(node, unit, stopStep, fmt.Sprint(unit)); said != "" {
				t.Fatalf("said %q", said)
			}
		}
	}
}

// receive has a node tell that it received units, each with its number for a word.
func (t *transfer) receive(node string, step uint64, units ...int) string {
	t.Helper()
	receipt := &events.Receipt{Negotiation: "g2", Node: node, Seconds: map[string]float64{"n1": 1, "n3": 3}[node]}
	for _, unit := range units {
		digest := events.Digest([]byte(fmt.Sprint(unit)))
		receipt.Units = append(receipt.Units, events.ReceivedUnit{Unit: unit, Step: step, Digest: digest, Bytes: 9000})
	}
	return t.told(hear(t.T, t.machine, events.ShardReceived, receipt))
}

// told says in short what was said: "" for nothing.
func (t *transfer) told(said []events.Event) string {
	t.Helper()
	if len(said) == 0 {
		return ""
	}
	if len(said) > 1 {
		t.Fatalf("said %v", said)
	}
	if said[0].Kind == events.RestorationDone {
		done, err := events.Open[events.Completion](said[0])
		if err != nil {
			t.Fatal(err)
		}
		return fmt.Sprintf("done, %d bytes in %v s", done.Bytes, done.Seconds)
	}
	failure, err := events.Open[events.Failure](said[0])
	if err != nil || said[0].Kind != events.RestorationFailed {
		t.Fatalf("said %+v, %v", said[0], err)
	}
	if len(failure.Givers) > 0 {
		return strings.TrimSpace(fmt.Sprintf("failed by %s, doubting %v", failure.Node, failure.Givers))
	}
	return "failed by " + failure.Node
}

func (t *transfer) expect(got, want string) {
	t.Helper()
	if got != want {
		t.Errorf("said %q: expected %q", got, want)
	}
}

func TestARestorationIsCompleteOnlyWhenEveryReceiverVerifiedWhatWasOffered(t *testing.T) {
	transfer := start(t)
	transfer.offers()
	transfer.expect(transfer.receive("n3", stopStep, 3), "")
	transfer.expect(transfer.receive("n1", stopStep, 2), "done, 18000 bytes in 3 s")
	transfer.expect(transfer.receive("n1", stopStep, 2), "")
}

func TestAGiverThatDiffersFromMostIsBlamedWhenAllHaveOffered(t *testing.T) {
	for _, order := range [][]string{{"n6", "n5", "n4"}, {"n4", "n6", "n5"}, {"n5", "n4", "n6"}} {
		transfer, said := start(t), []string{}
		for _, node := range order {
			word := "right"
			if node == "n6" {
				word = "astray"
			}
			said = append(said, transfer.offer(node, 3, stopStep, word))
		}
		if want := []string{"", "", "failed by n6, doubting [n6]"}; !slices.Equal(said, want) {
			t.Errorf("%v: said %q, expected %q", order, said, want)
		}
	}
}

func TestOfTwoGiversThatDifferNobodyIsBlamedAndBothAreDoubted(t *testing.T) {
	transfer := start(t)
	transfer.expect(transfer.offer("n5", 2, stopStep, "a"), "")
	transfer.expect(transfer.offer("n4", 2, stopStep, "b"), "failed by , doubting [n4 n5]")
}

func TestGiversThatAreOnlyAlikeAreNotCompared(t *testing.T) {
	transfer := start(t)
	transfer.machine.state.Watch.Alike = true
	transfer.expect(transfer.offer("n5", 2, stopStep, "2"), "")
	transfer.expect(transfer.offer("n4", 2, stopStep, "nearly 2"), "")
	transfer.expect(transfer.offer("n5", 3, stopStep, "3"), "")
	transfer.expect(transfer.receive("n3", stopStep, 3), "")
	transfer.expect(transfer.receive("n1", stopStep, 2), "done, 18000 bytes in 3 s")
}

func TestAGiverThatContradictsItselfIsBlamed(t *testing.T) {
	transfer := start(t)
	transfer.expect(transfer.offer("n5", 3, stopStep, "a"), "")
	transfer.expect(transfer.offer("n5", 3, stopStep, "a"), "")
	transfer.expect(transfer.offer("n5", 3, stopStep, "b"), "failed by n5, doubting [n5]")
}

func TestAnOfferOfAnotherStepThanScheduledIsItsGiversFault(t *testing.T) {
	for _, step := range []uint64{0, stopStep - 1, stopStep + 1} {
		transfer := start(t)
		transfer.expect(transfer.offer("n5", 3, step, "3"), "failed by n5, doubting [n5]")
	}
}

func TestAnOfferThatNobodyAskedForHasNoEffect(t *testing.T) {
	transfer := start(t)
	transfer.expect(transfer.offer("n6", 2, stopStep, "by no giver of that unit"), "")
	transfer.expect(transfer.offer("n5", 0, stopStep, "of a unit that does not move"), "")
	transfer.offers()
	transfer.expect(transfer.receive("n3", stopStep, 3), "")
	transfer.expect(transfer.receive("n1", stopStep, 2), "done, 18000 bytes in 3 s")
}

func TestAReceiptThatIsNotOfWhatWasOfferedIsItsReceiversFault(t *testing.T) {
	for name, receive := range map[string]func(*transfer) string{
		"an import of another step":     func(t *transfer) string { return t.receive("n3", stopStep-1, 3) },
		"another unit":                  func(t *transfer) string { return t.receive("n3", stopStep, 2) },
		"a unit more":                   func(t *transfer) string { return t.receive("n3", stopStep, 3, 2) },
		"a unit twice":                  func(t *transfer) string { return t.receive("n3", stopStep, 3, 3) },
		"nothing":                       func(t *transfer) string { return t.receive("n3", stopStep) },
		"other bytes than were offered": func(t *transfer) string { return t.flipped("n3", 3) },
	} {
		t.Run(name, func(t *testing.T) {
			transfer := start(t)
			transfer.offers()
			transfer.expect(receive(transfer), "failed by n3")
			transfer.expect(transfer.receive("n1", stopStep, 2), "") // it is over
			transfer.expect(transfer.receive("n3", stopStep, 3), "")
		})
	}
}

// flipped has a node tell that it received other bytes than were offered.
func (t *transfer) flipped(node string, unit int) string {
	t.Helper()
	digest := events.Digest([]byte("flipped"))
	return t.told(hear(t.T, t.machine, events.ShardReceived, &events.Receipt{Negotiation: "g2", Node: node,
		Units: []events.ReceivedUnit{{Unit: unit, Step: stopStep, Digest: digest, Bytes: 9000}}}))
}

func TestAGiverThatOffersNothingHoldsUpItsReceivers(t *testing.T) {
	transfer := start(t)
	transfer.offer("n4", 2, stopStep, "2")
	for _, node := range []string{"n6", "n5", "n4"} {
		transfer.offer(node, 3, stopStep, "3")
	}
	transfer.receive("n3", stopStep, 3)
	transfer.expect(transfer.overdue("g2"), "failed by n5, doubting [n5]") // n1 waits for its unit 2
	transfer.expect(transfer.overdue("g2"), "")                            // it is over
}

func TestAReceiverThatWasOfferedAllHoldsUpTheOthers(t *testing.T) {
	transfer := start(t)
	transfer.offers()
	transfer.receive("n1", stopStep, 2)
	transfer.expect(transfer.overdue("g1"), "") // another negotiation
	transfer.expect(transfer.overdue("g2"), "failed by n3")
}

func TestATransferThatIsDoneIsNotLate(t *testing.T) {
	transfer := start(t)
	transfer.offers()
	transfer.receive("n1", stopStep, 2)
	transfer.receive("n3", stopStep, 3)
	transfer.expect(transfer.overdue("g2"), "")
}

func (t *transfer) overdue(negotiation string) string {
	t.Helper()
	return t.told(hear(t.T, t.machine, events.NegotiationOverdue,
		&events.Overdue{Negotiation: negotiation, Phase: "transferring"}))
}

func TestAReceiptOfWhatNobodyOfferedIsItsReceiversFault(t *testing.T) {
	transfer := start(t)
	transfer.expect(transfer.receive("n1", stopStep, 2), "failed by n1")
}

func TestAReceiptOfANodeThatReceivesNothingHasNoEffect(t *testing.T) {
	transfer := start(t)
	transfer.expect(transfer.receive("n6", stopStep, 3), "")
}

func TestWhatBelongsToAnotherNegotiationHasNoEffect(t *testing.T) {
	transfer := start(t)
	receipt := &events.Receipt{Negotiation: "g1", Node: "n1"}
	transfer.expect(transfer.told(hear(t, transfer.machine, events.ShardReceived, receipt)), "")
	hear(t, transfer.machine, events.Aborted, &events.Abort{Negotiation: "g1"})
	transfer.offers()
	transfer.expect(transfer.receive("n3", stopStep, 3), "")
	transfer.expect(transfer.receive("n1", stopStep, 2), "done, 18000 bytes in 3 s")
}

func TestAnAbortedTransferIsNotWatchedAnyMore(t *testing.T) {
	transfer := start(t)
	transfer.offers()
	hear(t, transfer.machine, events.Aborted, &events.Abort{Negotiation: "g2"})
	transfer.expect(transfer.receive("n3", stopStep, 2), "")
}

// A state of as many units as the wire allows moves, and none of it is in the receipt.
func TestAFailuresReasonFitsIntoAnEvent(t *testing.T) {
	plan := events.Plan{
		Cluster: "c", Generation: 2, Parent: "p", Nodes: members("n1", "n4"),
		Data: events.Data{GlobalBatch: 8, MicroBatch: 1},
	}
	for _, node := range plan.Nodes {
		stages := []events.Stage{stage(node.Node, 0, events.MostUnits)}
		plan.Pipelines = append(plan.Pipelines, events.Pipeline{MicroBatches: 4, Stages: stages})
	}
	plan.Migration.ShardBytes = 1
	for unit := range events.MostUnits {
		moved := events.Transfer{Unit: unit, To: "n1", Bytes: 1, Sources: sources("n4")}
		plan.Migration.Transfers = append(plan.Migration.Transfers, moved)
	}
	m := New("c", Settings{})
	hear(t, m, events.Scheduled, &events.Schedule{Negotiation: "g2", StopStep: stopStep, Plan: plan})
	transfer := &transfer{t, m}
	transfer.expect(transfer.receive("n1", stopStep), "failed by n1")
}
