package machine

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/reknit/reknit/events"
)

// inForce is a machine whose plan of two layers, in three pipelines of one stage each, was committed.
func inForce(t *testing.T) *Machine { return inForceOf(t, 2) }

func inForceOf(t *testing.T, layers int) *Machine { return inForceAmong(t, layers, "n1", "n2", "n3") }

func inForceAmong(t *testing.T, layers int, nodes ...string) *Machine {
	plan := events.Plan{Cluster: "c", Generation: 1, Nodes: members(nodes...),
		Data: events.Data{GlobalBatch: len(nodes), MicroBatch: 1}}
	var holders []events.Holder
	for _, node := range plan.Nodes {
		plan.Pipelines = append(plan.Pipelines,
			events.Pipeline{MicroBatches: 1, Stages: []events.Stage{stage(node.Node, 0, layers)}})
		holders = append(holders, held(node.Node, 0, layers))
	}
	m := New("c", Settings{})
	hear(t, m, events.RestorationAsked, &events.RestorationRequest{
		Negotiation: "g1", Proposal: events.Proposal{Negotiation: "g1", Plan: plan}, Holders: holders, Units: slices.Repeat([]int64{9000}, layers),
	})
	hear(t, m, events.Committed, &events.Commitment{Negotiation: "g1", Generation: 1, PlanDigest: events.Digest(nil)})
	return m
}

// tells says what a node holds: a word for each layer.
func tells(t *testing.T, m *Machine, node string, generation, step uint64, layers ...string) []string {
	t.Helper()
	digests := &events.Digests{Node: node, Generation: generation, Step: step}
	for layer, word := range layers {
		digests.Units = append(digests.Units, events.UnitDigest{Unit: layer, Digest: events.Digest([]byte(word))})
	}
	var said []string
	for _, event := range hear(t, m, events.TrainingDigested, digests) {
		d, err := events.Open[events.Divergence](event)
		if err != nil {
			t.Fatal(err)
		}
		told := fmt.Sprintf("layer %d at step %d: %s", d.Unit, d.Step, strings.Join(d.Minority, " "))
		if len(d.Silent) > 0 {
			told += ", silent " + strings.Join(d.Silent, " ")
		}
		said = append(said, told)
	}
	return said
}

func TestTheMinorityOfALayersReplicasIsNamedOnceAllHaveSpoken(t *testing.T) {
	m := inForce(t)
	tells(t, m, "n2", 1, 9, "a", "b")
	if said := slices.Concat(tells(t, m, "n1", 1, 10, "a", "b"), tells(t, m, "n3", 1, 10, "a", "x")); len(said) > 0 {
		t.Fatalf("said %q before n2 spoke of step 10", said)
	}
	if said := tells(t, m, "n2", 1, 10, "a", "b"); !slices.Equal(said, []string{"layer 1 at step 10: n3"}) {
		t.Fatalf("said %q", said)
	}
}

// Whose state is on a GPU, or who does not want to, tells no digests.
func TestAHolderThatNeverSpeaksHidesNobodysDivergenceAndIsNamed(t *testing.T) {
	m := inForceAmong(t, 1, "n1", "n2", "n3", "n4", "n5")
	var said []string
	for _, step := range []uint64{100, 200} {
		for _, node := range []string{"n1", "n2", "n3", "n4"} {
			word := "right"
			if node == "n3" {
				word = "astray"
			}
			said = append(said, tells(t, m, node, 1, step, word)...)
		}
	}
	if !slices.Equal(said, []string{"layer 0 at step 100: n3, silent n5"}) {
		t.Fatalf("said %q", said)
	}
	if said := tells(t, m, "n5", 1, 100, "astray"); !slices.Equal(said, []string{"layer 0 at step 100: n5"}) {
		t.Errorf("said %q where it speaks after all", said)
	}
	if said := tells(t, m, "n5", 1, 100, "right"); len(said) > 0 {
		t.Errorf("said %q", said)
	}
}

func TestHalfOfTheHoldersBlameNobody(t *testing.T) {
	m := inForceAmong(t, 1, "n1", "n2", "n3", "n4")
	for _, step := range []uint64{100, 200, 1 << 40} {
		for node, word := range map[string]string{"n1": "a", "n2": "a", "n3": "b"} {
			if said := tells(t, m, node, 1, step, word); len(said) > 0 {
				t.Fatalf("said %q", said)
			}
		}
	}
}

// What it speaks of may be far away: only who agrees with most has a step judged.
func TestOneThatSpeaksOfLaterStepsHasNothingJudged(t *testing.T) {
	m := inForceAmong(t, 1, "n1", "n2", "n3", "n4")
	for _, node := range []string{"n1", "n2", "n3"} {
		tells(t, m, node, 1, 100, map[string]string{"n1": "astray", "n2": "a", "n3": "a"}[node])
	}
	if said := tells(t, m, "n1", 1, 200, "astray"); len(said) > 0 {
		t.Errorf("said %q", said)
	}
	if said := tells(t, m, "n4", 1, 100, "a"); !slices.Equal(said, []string{"layer 0 at step 100: n1"}) {
		t.Errorf("said %q", said)
	}
}

func TestACopyThatWentAstrayIsFoundBesideTheOneItHasItFrom(t *testing.T) {
	m := inForce(t)
	m.state.Compare.Fetched = map[int][]string{0: {"n2", "n3"}}
	tells(t, m, "n1", 1, 10, "a", "b")
	tells(t, m, "n2", 1, 10, "a", "b")
	if said := tells(t, m, "n3", 1, 10, "x", "b"); !slices.Equal(said, []string{"layer 0 at step 10: n3"}) {
		t.Errorf("n1 and its other copy agree: said %q", said)
	}
}

// One holder goes astray after a copy of it was made, and another copy after that: these two are no majority.
func TestACopyOfOneThatWentAstrayIsNoVoiceAgainstAnOlderCopy(t *testing.T) {
	for _, test := range []struct {
		since   []uint64 // of n2 and n3
		blames  string
		because string
	}{
		{[]uint64{3, 9}, "", "n3 may have what went astray meanwhile"},
		{[]uint64{9, 9}, " n2", "n1 was right when both had it from it"},
		{[]uint64{9, 3}, " n2", "n3 had it for longer than n2"},
		{nil, " n2", "a build before told no generations"},
	} {
		m := inForce(t)
		m.state.Compare.Fetched, m.state.Compare.Since = map[int][]string{0: {"n2", "n3"}}, map[int][]uint64{0: test.since}
		tells(t, m, "n1", 1, 10, "a", "b")
		tells(t, m, "n3", 1, 10, "a", "b")
		said := tells(t, m, "n2", 1, 10, "x", "b")
		if want := "layer 0 at step 10:" + cmp.Or(test.blames, " "); !slices.Equal(said, []string{want}) {
			t.Errorf("fetched in %v: said %q, expected %q: %s", test.since, said, want, test.because)
		}
	}
}

// A plan that came into force before anything was compared makes nobody's word more than it was.
func TestACopyHasNoVoiceOfItsOwnUnderTheNextPlanEither(t *testing.T) {
	m := inForce(t)
	m.state.Compare.Fetched = map[int][]string{0: {"n2"}}
	plan := events.Plan{Cluster: "c", Generation: 2, Parent: "p", Nodes: members("n1", "n2", "n3"),
		Data: events.Data{GlobalBatch: 3, MicroBatch: 1}}
	var holders []events.Holder
	for _, node := range plan.Nodes {
		plan.Pipelines = append(plan.Pipelines, events.Pipeline{MicroBatches: 1, Stages: []events.Stage{stage(node.Node, 0, 2)}})
		holders = append(holders, held(node.Node, 0, 2))
	}
	hear(t, m, events.RestorationAsked, &events.RestorationRequest{Negotiation: "g2",
		Proposal: events.Proposal{Negotiation: "g2", Plan: plan}, Holders: holders, Units: []int64{9000, 9000}})
	hear(t, m, events.Committed, &events.Commitment{Negotiation: "g2", Generation: 2, PlanDigest: events.Digest(nil)})
	tells(t, m, "n1", 2, 10, "right", "b") // alone, and n2 has its copy from n3
	tells(t, m, "n2", 2, 10, "astray", "b")
	if said := tells(t, m, "n3", 2, 10, "astray", "b"); !slices.Equal(said, []string{"layer 0 at step 10: "}) {
		t.Errorf("said %q, expected that the replicas differ, and nobody blamed", said)
	}
}

// A transfer ends well only where its givers agree, and two that have the layer from nobody do not go astray alike.
func TestACopyOfTwoThatAgreeIsAVoice(t *testing.T) {
	for name, c := range map[string]struct {
		sources []events.Source
		fetched []string // by then
		voice   bool
	}{
		"from two":                        {[]events.Source{{Node: "n1"}, {Node: "n2"}}, nil, true},
		"from one, in two parts":          {[]events.Source{{Node: "n1"}, {Node: "n1"}}, nil, false},
		"from one and its copy":           {[]events.Source{{Node: "n1"}, {Node: "n2"}}, []string{"n2"}, false},
		"from one and from who held none": {[]events.Source{{Node: "n1"}, {Node: "n9"}}, nil, false},
	} {
		before := &comparison{Holders: [][]string{{"n1", "n2"}}}
		for _, node := range c.fetched {
			before.fetch(0, node, 1)
		}
		plan := events.Plan{Generation: 2, Nodes: members("n1", "n4"), Migration: events.Migration{
			Transfers: []events.Transfer{{Unit: 0, To: "n4", Sources: c.sources}},
		}}
		for _, node := range plan.Nodes {
			plan.Pipelines = append(plan.Pipelines, events.Pipeline{MicroBatches: 1, Stages: []events.Stage{stage(node.Node, 0, 1)}})
		}
		if voices := newComparison(&plan, before).voices(0); slices.Contains(voices, "n4") != c.voice {
			t.Errorf("%s: voices are %v", name, voices)
		}
	}
}

func TestReplicasThatAreOnlyAlikeAreNotCompared(t *testing.T) {
	m := New("c", Settings{})
	plan := events.Plan{Cluster: "c", Generation: 1, Nodes: members("n1"), Replicas: events.AlikeReplicas,
		Data:      events.Data{GlobalBatch: 1, MicroBatch: 1},
		Pipelines: []events.Pipeline{{MicroBatches: 1, Stages: []events.Stage{stage("n1", 0, 1)}}}}
	hear(t, m, events.RestorationAsked, &events.RestorationRequest{
		Negotiation: "g1", Proposal: events.Proposal{Negotiation: "g1", Plan: plan},
		Holders: []events.Holder{held("n1", 0, 1)}, Units: []int64{9000},
	})
	hear(t, m, events.Committed, &events.Commitment{Negotiation: "g1", Generation: 1, PlanDigest: events.Digest(nil)})
	if said := tells(t, m, "n1", 1, 10, "a"); len(said) > 0 || m.state.Compare != nil {
		t.Errorf("said %q, and remembers %+v", said, m.state.Compare)
	}
}

func TestWhereEveryReplicaDiffersNobodyIsBlamed(t *testing.T) {
	m := inForce(t)
	tells(t, m, "n1", 1, 10, "a", "b")
	tells(t, m, "n2", 1, 10, "a", "c")
	if said := tells(t, m, "n3", 1, 10, "a", "d"); !slices.Equal(said, []string{"layer 1 at step 10: "}) {
		t.Fatalf("said %q", said)
	}
}

// Two pipelines keep partition 0 of two; n1 went astray and spread its parameters, so that n2 alone is right.
func TestWhoHasOtherParametersThanTheirCopiesIsNotBlamed(t *testing.T) {
	request := lossOfPartitions()
	for p, partitions := range [][]int{{0}, {0}, {1}} {
		request.Proposal.Plan.Pipelines[p].Partitions = partitions
	}
	request.Proposal.Classes = nil
	request.Units = request.Units[:9]
	request.Holders = nil
	for node, partition := range map[string]int{"n1": 0, "n2": 0, "n4": 1} {
		moments := events.Range{First: 3 + 3*partition, End: 6 + 3*partition}
		request.Holders = append(request.Holders, events.Holder{Node: node, Units: []events.Range{{End: 3}, moments}})
	}
	m := New("c", Settings{})
	hear(t, m, events.RestorationAsked, &request)
	hear(t, m, events.Committed, &events.Commitment{Negotiation: "g2", Generation: 2, PlanDigest: events.Digest(nil)})
	said := slices.Concat(
		tells(t, m, "n1", 2, 10, "astray", "b", "c", "spoilt"), tells(t, m, "n2", 2, 10, "right", "b", "c", "moments"), tells(t, m, "n4", 2, 10, "astray", "b", "c"))
	if want := []string{"layer 3 at step 10: ", "layer 0 at step 10: "}; !slices.Equal(said, want) {
		t.Errorf("said %q: expected %q", said, want)
	}
}

func TestWhereAllKeepAllPartitionsTheMinorityIsBlamed(t *testing.T) {
	request := lossOfPartitions()
	request.Units, request.Holders = request.Units[:9], nil
	for p, node := range request.Proposal.Plan.Nodes {
		request.Proposal.Plan.Pipelines[p].Partitions = []int{0, 1}
		request.Holders = append(request.Holders, held(node.Node, 0, 9))
	}
	m := New("c", Settings{})
	hear(t, m, events.RestorationAsked, &request)
	hear(t, m, events.Committed, &events.Commitment{Negotiation: "g2", Generation: 2, PlanDigest: events.Digest(nil)})
	said := slices.Concat(tells(t, m, "n1", 2, 10, "right"), tells(t, m, "n2", 2, 10, "astray"),
		tells(t, m, "n4", 2, 10, "right"))
	if want := []string{"layer 0 at step 10: n2"}; !slices.Equal(said, want) {
		t.Errorf("said %q: expected %q", said, want)
	}
}

func TestDigestsOfAnotherPlanOrOfWhoHasNoPartInItAreNotCompared(t *testing.T) {
	m := inForce(t)
	for _, said := range [][]string{
		tells(t, m, "n1", 2, 10, "x"), tells(t, m, "n9", 1, 10, "x"), tells(t, m, "n1", 1, 10, "a", "b", "no such layer"),
	} {
		if len(said) > 0 {
			t.Fatalf("said %q", said)
		}
	}
}

// The twin remembers all that was ever said.
func TestInWhateverOrderNodesSpeakWhoDiffersIsFound(t *testing.T) {
	for seed := range uint64(200) {
		random := rand.New(rand.NewPCG(seed, 1))
		m, found, want := inForce(t), []string{}, []string{}
		var words [][3]string
		for step := range mostSteps {
			correct := []string{"a", "a", "a"}
			correct[random.IntN(3)] = []string{"a", "b"}[random.IntN(2)]
			for i, word := range correct {
				words = append(words, [3]string{fmt.Sprint(step), fmt.Sprintf("n%d", i+1), word})
				if word == "b" {
					want = append(want, fmt.Sprintf("layer 0 at step %d: n%d", step, i+1))
				}
			}
		}
		random.Shuffle(len(words), func(i, j int) { words[i], words[j] = words[j], words[i] })
		for _, word := range words {
			var step uint64
			fmt.Sscan(word[0], &step)
			found = append(found, tells(t, m, word[1], 1, step, word[2])...)
			restored := New("c", Settings{})
			if snapshot, err := m.Snapshot(); err != nil || restored.Restore(snapshot) != nil {
				t.Fatal(err)
			}
			m = restored
		}
		slices.Sort(found)
		if !slices.Equal(found, want) {
			t.Fatalf("seed %d: found %q, want %q", seed, found, want)
		}
	}
}

func TestWhoFetchedIsFollowedThoughABuildOfBeforeDoesNotTellSinceWhen(t *testing.T) {
	holders := [][]string{{"n1", "n2", "n3"}}
	next := &comparison{Holders: holders, Fetched: map[int][]string{0: {"n2"}}}
	next.follow(&comparison{Holders: holders, Fetched: map[int][]string{0: {"n3"}}, Since: map[int][]uint64{0: {7}}})
	if since := next.since(0); len(since) != 2 || since["n2"] != 1 || since["n3"] != 7 {
		t.Errorf("fetched since %v, expected n2 since 1 and n3 since 7", since)
	}
}

// The plan between came to nothing: n2 had no place for the unit in it, and has its copy of before under the next.
func TestWhoFetchedIsNoVoiceAfterAPlanWithoutIt(t *testing.T) {
	fetched := &comparison{Holders: [][]string{{"n1", "n2"}}, Fetched: map[int][]string{0: {"n2"}}, Since: map[int][]uint64{0: {7}}}
	between := &comparison{Holders: [][]string{{"n1"}}}
	between.follow(fetched)
	next := &comparison{Holders: [][]string{{"n1", "n2"}}}
	next.follow(between)
	if voices := next.voices(0); !slices.Equal(voices, []string{"n1"}) {
		t.Errorf("voices %v, expected n1", voices)
	}
	given := &comparison{Holders: [][]string{{"n1", "n2"}}, Fetched: map[int][]string{0: {"n2"}}, Since: map[int][]uint64{0: {0}}}
	given.follow(between)
	if voices := given.voices(0); !slices.Equal(voices, []string{"n1", "n2"}) {
		t.Errorf("voices %v, expected n1 and n2, to which two gave it together since", voices)
	}
}

// remembered is how many bytes a machine keeps.
func remembered(t *testing.T, m *Machine) int {
	t.Helper()
	snapshot, err := m.Snapshot()
	if err != nil {
		t.Fatal(err)
	}
	return len(snapshot)
}

func TestWhatWasComparedIsForgotten(t *testing.T) {
	m := inForce(t)
	before := remembered(t, m)
	for _, node := range []string{"n1", "n2", "n3"} {
		tells(t, m, node, 1, 10, "a", "b")
	}
	if after := remembered(t, m); after != before {
		t.Errorf("%d bytes are remembered after all were compared, and %d before", after, before)
	}
}

// Digests do not compress, and gzip finds what it has seen within 32 KiB. What 256 nodes said of 108 units each made a
// memory of almost 1 MiB, beyond which the hub takes no message.
func TestWhatReplicasSaidCompressesToWhatOneSaid(t *testing.T) {
	m, words := inForceOf(t, 500), []string{}
	for layer := range 500 {
		words = append(words, fmt.Sprint(layer))
	}
	tells(t, m, "n1", 1, 10, words...)
	one := compressed(t, m)
	tells(t, m, "n2", 1, 10, words...)
	if two := compressed(t, m); 2*two > 3*one {
		t.Errorf("one node's digests take %d bytes, and those of two that agree %d", one, two)
	}
}

// compressed is how many bytes of a machine's memory the hub is to keep.
func compressed(t *testing.T, m *Machine) int {
	t.Helper()
	snapshot, err := m.Snapshot()
	if err != nil {
		t.Fatal(err)
	}
	var buffer bytes.Buffer
	writer := gzip.NewWriter(&buffer)
	if _, err := writer.Write(snapshot); err != nil {
		t.Fatal(err)
	}
	if err := writer.Close(); err != nil {
		t.Fatal(err)
	}
	return buffer.Len()
}

func TestOfANodeThatNeverSpeaksOnlyTheLastStepsAreKept(t *testing.T) {
	m := inForce(t)
	for step := range uint64(10) {
		tells(t, m, "n1", 1, step, "a")
	}
	before := remembered(t, m)
	for step := range uint64(90) {
		tells(t, m, "n1", 1, 10+step, "a")
	}
	if after := remembered(t, m); after > before+2*mostSteps { // a digit more in each step
		t.Fatalf("%d bytes are remembered after 100 steps, and %d after 10", after, before)
	}
	tells(t, m, "n3", 1, 3, "x")
	if said := tells(t, m, "n2", 1, 3, "x"); len(said) > 0 {
		t.Fatalf("a step long past: said %q", said)
	}
	tells(t, m, "n3", 1, 99, "a")
	if said := tells(t, m, "n2", 1, 99, "x"); !slices.Equal(said, []string{"layer 0 at step 99: n2"}) {
		t.Fatalf("the last step: said %q", said)
	}
}

func TestAHolderThatSpeaksOfStepsThatNeverComeHidesNoDivergence(t *testing.T) {
	for _, far := range []uint64{0, 1e6, 1 << 52} {
		m := inForce(t)
		for step := range uint64(3 * mostSteps) {
			tells(t, m, "n1", 1, far+step, "x")
		}
		tells(t, m, "n2", 1, 100, "a", "b")
		tells(t, m, "n3", 1, 100, "a", "c")
		said := tells(t, m, "n1", 1, 100, "a", "b")
		if !slices.Equal(said, []string{"layer 1 at step 100: n3"}) {
			t.Errorf("after steps from %d on: said %q", far, said)
		}
	}
}
