package restore

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/reknit/reknit/events"
	"github.com/reknit/reknit/services/reknit/plan"
	"github.com/reknit/reknit/services/reknit/tell"
)

var update = flag.Bool("update", false, "write the expected outputs anew; look at what changed before you commit it")

var (
	before = filepath.Join("testdata", "figure3-from.json")
	after  = filepath.Join("testdata", "figure3-to.json")
	links  = filepath.Join("testdata", "figure3-links.json")
)

// layer is what a layer weighs where no file says so.
const layer = 896 << 20

func output(t *testing.T, run func([]string, *bytes.Buffer) error, arguments ...string) string {
	t.Helper()
	var written bytes.Buffer
	if err := run(arguments, &written); err != nil {
		t.Fatal(err)
	}
	return written.String()
}

func restored(arguments []string, w *bytes.Buffer) error { return Run(arguments, w) }

func planned(arguments []string, w *bytes.Buffer) error { return plan.Run(arguments, w) }

// documented runs the command and reads its document, which must be a valid restoration.
func documented(t *testing.T, arguments ...string) document {
	t.Helper()
	data := []byte(output(t, restored, append(arguments, "--json")...))
	if bytes.Contains(data, []byte("null")) {
		t.Errorf("null in\n%s\nexpected empty lists, as the schema says", data)
	}
	var read document
	if err := events.Decode(data, &read.Restoration); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(data, &read); err != nil {
		t.Fatal(err)
	}
	return read
}

func TestEachExampleIsToldAsItsOutputShows(t *testing.T) {
	for name, arguments := range map[string][]string{
		"figure3":       {"--from", before, "--to", after},
		"figure3-links": {"--from", before, "--to", after, "--links", links},
	} {
		path, got := filepath.Join("testdata", name+".txt"), output(t, restored, arguments...)
		if *update {
			save(t, path, got)
		}
		if want := text(t, path); got != want {
			t.Errorf("%s is told as\n%s\nexpected (go test ./restore -update writes it anew)\n%s", name, got, want)
		}
		for _, line := range strings.Split(got, "\n") {
			if len(line) > 100 {
				t.Errorf("%s: %d columns: %s", name, len(line), line)
			}
		}
	}
}

// Chameleon, figure 3: nine layers, three pipelines of three stages become two of four, one node lost. Each place reads
// its layers on a link of 125 MB/s.
func TestFromThreeByThreeToTwoByFourThreeLayersMoveWhereNaiveWaysMoveMore(t *testing.T) {
	got := documented(t, "--from", before, "--to", after)
	for name, test := range map[string]struct {
		figure
		moves, slowest int64 // layers, of all and of the node that fetches most
	}{
		"restoration":   {got.Figures.Restoration, 3, 2},
		"restart":       {got.Figures.Restart, 18, 3},
		"rank order":    {got.Figures.RankOrder, 9, 3},
		"single source": {got.Figures.SingleSource, 3, 2},
	} {
		if want := (figure{test.moves * layer, float64(test.slowest*layer) / 125e6}); test.figure != want {
			t.Errorf("%s costs %+v, expected %+v", name, test.figure, want)
		}
	}
	if got.BytesMoved != 3*layer || got.NaiveBytes != 18*layer || len(got.Plan.Migration.Transfers) != 3 {
		t.Errorf("moves %d of %d bytes in %d transfers, expected 3 layers of 18", got.BytesMoved, got.NaiveBytes,
			len(got.Plan.Migration.Transfers))
	}
}

// The plan before an example's change is planned in the same way when it is asked for alone.
func TestWhatPlanPrintsGoesStraightIntoRestoreAndComesOutTheSame(t *testing.T) {
	opticks := text(t, filepath.Join("..", "plan", "testdata", "opticks.yaml"))
	for _, change := range []string{"failed: [n2]", "failed: [n1, n5]", "joining: [n6]"} {
		folder := t.TempDir()
		file, from, to := filepath.Join(folder, "cluster.yaml"), filepath.Join(folder, "from.json"),
			filepath.Join(folder, "to.json")
		save(t, file, opticks)
		if change == "joining: [n6]" {
			save(t, file, without("n6", opticks))
		}
		save(t, from, output(t, planned, "--file", file, "--json"))
		save(t, file, opticks+change+"\n")
		save(t, to, output(t, planned, "--file", file, "--json"))

		var wanted events.Plan
		if err := events.Decode([]byte(text(t, to)), &wanted); err != nil {
			t.Fatal(err)
		}
		got := documented(t, "--from", from, "--to", to, "--links", file)
		if len(wanted.Migration.Transfers) == 0 {
			t.Errorf("%s: nothing moves, expected a change that moves something", change)
		}
		want := wanted.Migration
		if migration := got.Plan.Migration; !reflect.DeepEqual(got.Plan.Pipelines, wanted.Pipelines) ||
			!reflect.DeepEqual(migration.Transfers, want.Transfers) || migration.ShardBytes != want.ShardBytes {
			t.Errorf("%s: restored to %+v with %+v\nexpected %+v with %+v", change, got.Plan.Pipelines, migration,
				wanted.Pipelines, want)
		}
		if got.Plan.Predicted.TransitionSeconds != wanted.Predicted.TransitionSeconds ||
			!reflect.DeepEqual(got.Plan.Sync, wanted.Sync) {
			t.Errorf("%s: in %v s, rounds %+v, expected %v s and %+v", change, got.Plan.Predicted.TransitionSeconds,
				got.Plan.Sync,
				wanted.Predicted.TransitionSeconds, wanted.Sync)
		}
		again := documented(t, "--from", to, "--to", to, "--links", file)
		if again.BytesMoved != 0 || again.Figures.Restoration != (figure{}) || again.Figures.Restart.Seconds == 0 {
			t.Errorf("%s: from a plan to itself %+v, expected that only a restart costs something", change,
				again.Figures)
		}
	}
}

// without leaves out the lines that name a node.
func without(node, file string) string {
	lines := slices.Collect(strings.Lines(file))
	return strings.Join(slices.DeleteFunc(lines, func(line string) bool { return strings.Contains(line, node) }), "")
}

func TestNoNaiveWayIsCheaperAndNoScheduleOfReductionsBeatsItsBound(t *testing.T) {
	for _, arguments := range [][]string{{}, {"--links", links}} {
		got := documented(t, append([]string{"--from", before, "--to", after}, arguments...)...)
		f := got.Figures
		if f.Restoration.Bytes > f.RankOrder.Bytes || f.RankOrder.Bytes > f.Restart.Bytes ||
			f.Restoration.Seconds > f.SingleSource.Seconds {
			t.Errorf("with %v: %+v, expected that no naive way is cheaper", arguments, f)
		}
		busiest, total := map[string]float64{}, 0.0
		for r, round := range got.Plan.Sync.Rounds {
			for g, group := range round.Groups {
				for _, node := range group.Nodes {
					busiest[node] += f.AllReduce.GroupSeconds[r][g]
				}
			}
			total += slices.Max(f.AllReduce.GroupSeconds[r])
		}
		bound := slices.Max(slices.Collect(maps.Values(busiest)))
		if f.AllReduce.Seconds != total || f.AllReduce.SecondsLowerBound < bound-1e-6 ||
			f.AllReduce.SecondsLowerBound > bound+1e-6 || bound > total {
			t.Errorf("with %v: all-reduces take %+v, expected %v s and no less than %v s", arguments, f.AllReduce,
				total, bound)
		}
	}
}

func TestANodeStartedAnewHoldsNothing(t *testing.T) {
	anew := strings.Replace(text(t, after), `{"node": "n1", "incarnation": "1"`, `{"node": "n1", "incarnation": "2"`, 1)
	got := documented(t, "--from", before, "--to", saved(t, anew))
	// two for n1, and two for the third node that held layers 6 to 8, of which there are two places
	if got.BytesMoved != 4*layer {
		t.Errorf("%d bytes move, expected %d", got.BytesMoved, 4*layer)
	}
}

func TestReroutedMicroBatchesMoveNobody(t *testing.T) {
	rerouted := strings.NewReplacer(`    {"node": "n5", "incarnation": "1", "address": ""},`, "",
		`"sync"`,
		`"reroutes": [{"from": "n5", "to": "n2", "stage": 1, "microBatches": 8}], "sync"`).Replace(text(t, before))
	got := documented(t, "--from", before, "--to", saved(t, rerouted))
	if got.Figures.Restoration != (figure{}) || got.Figures.RankOrder != (figure{}) ||
		len(got.Plan.Migration.Moves) != 0 {
		t.Errorf("%+v with moves %v, expected that nobody moves", got.Figures, got.Plan.Migration.Moves)
	}
}

func TestNodesOfOtherMemorySpeedOrLinksDoNotTradePlaces(t *testing.T) {
	nodes := `{"nodes": [{"node": "n1", "memory": "8GiB"}, {"node": "n4", "memory": "8GiB"}, {"node": "n3", "memory": "8GiB", "speed": 2}],
		"links": {"disconnected": [["n2", "n6"]]}}`
	q, err := options{from: before, to: after, links: saved(t, nodes)}.question()
	if err != nil {
		t.Fatal(err)
	}
	want := [][]string{{"n1", "n4"}, {"n2", "n6"}, {"n3"}, {"n7", "n8", "n9"}}
	if got := q.request().Proposal.Classes; !reflect.DeepEqual(got, want) {
		t.Errorf("classes %v, expected %v", got, want)
	}
}

func TestAPlansRelaysAreNoDirectLinks(t *testing.T) {
	relayed := strings.Replace(text(t, after), `"sync"`, `"relays": [{"a": "n2", "b": "n6"}], "sync"`, 1)
	q, err := options{from: before, to: saved(t, relayed)}.question()
	if err != nil {
		t.Fatal(err)
	}
	request := q.request()
	if !reflect.DeepEqual(request.Unreachable, []events.Pair{{A: "n2", B: "n6"}}) ||
		len(request.Proposal.Classes) != 2 {
		t.Errorf("unreachable %v, classes %v, expected n2 and n6 apart from the others", request.Unreachable,
			request.Proposal.Classes)
	}
}

func TestALayerThatNobodyHoldsIsTheReasonWhyNot(t *testing.T) {
	var lost events.Plan
	if err := events.Decode([]byte(text(t, before)), &lost); err != nil {
		t.Fatal(err)
	}
	for p := range lost.Pipelines { // who held layers 0 to 2 is not in the plan wanted
		lost.Pipelines[p].Stages[0].Node = []string{"gone1", "gone2", "gone3"}[p]
		lost.Nodes = append(lost.Nodes, events.Member{Node: lost.Pipelines[p].Stages[0].Node})
	}
	data, _ := json.Marshal(lost)
	err := Run([]string{"--from", saved(t, string(data)), "--to", after}, &bytes.Buffer{})
	if err == nil || errors.As(err, &tell.UsageError{}) || !strings.Contains(err.Error(), "layer 0: no node holds it") {
		t.Errorf("error %v, expected one that names layer 0 and is no file's fault", err)
	}
}

func TestOneNodeAloneCanBeRestoredToItself(t *testing.T) {
	path := saved(t, `{"cluster": "c", "generation": 1, "policy": "p", "resumeStep": 0,
		"nodes": [{"node": "a", "incarnation": "1", "address": ""}], "pipelines": [{"microBatches": 1, "stages":
		[{"node": "a", "layers": {"first": 0, "end": 2}}]}], "sync": {"rounds": []}, "migration": {"moves": [], "transfers": [],
		"drops": [], "shardBytes": 0}, "data": {"globalBatch": 1, "microBatch": 1, "consumedSamples": 0}, "predicted":
		{"stepSeconds": 0, "stepSecondsLowerBound": 0, "transitionSeconds": 0, "peakBytes": {}, "samplesPerSecond": 0},
		"learningRateScale": 1}`)
	if got := documented(t, "--from", path, "--to",
		path).Figures.Restart; got != (figure{2 * layer, 2 * layer / 125e6}) {
		t.Errorf("a restart costs %+v", got)
	}
}

func TestHelpTellsEachFlagAndTheExitStatus(t *testing.T) {
	var help bytes.Buffer
	if err := Run([]string{"--help"}, &help); !errors.Is(err, flag.ErrHelp) {
		t.Fatal(err)
	}
	for _, says := range []string{"-from", "-to", "-links", "-json", "Exit status"} {
		if !strings.Contains(help.String(), says) {
			t.Errorf("expected %q in\n%s", says, &help)
		}
	}
}

func text(t *testing.T, path string) string {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

func save(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

// saved returns the path of a file with a text.
func saved(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "file.json")
	save(t, path, text)
	return path
}
