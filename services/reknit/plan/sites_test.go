package plan

import (
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/reknit/reknit/events"
	restorer "github.com/reknit/reknit/services/restorer/machine"
)

// twoSites lose one of two nodes each. The second's other node fetches a model from the first's, over a pair of which the
// file says nothing; the three other pairs between the sites are slow.
const twoSites = `cluster: two
nodes:
  - {node: a1, memory: 80GiB, site: A}
  - {node: a2, memory: 80GiB, site: A}
  - {node: b1, memory: 80GiB, site: B}
  - {node: b2, memory: 80GiB, site: B}
links:
  default: {roundTrip: 1ms, bandwidth: 10Gbit/s}
  measured:
    - {between: [a1, b1], roundTrip: 30ms, bandwidth: 100Mbit/s}
    - {between: [a1, b2], roundTrip: 30ms, bandwidth: 100Mbit/s}
    - {between: [a2, b1], roundTrip: 30ms, bandwidth: 100Mbit/s}
model:
  layers: 8
  profile: {parameters: 300MiB, optimizer: 600MiB, gradients: 30MiB, activations: 100MiB, output: 1MiB, forward: 200ms, backward: 400ms}
globalBatch: 32
microBatch: 1
timeBetweenFailures: 10h
current:
  - {microBatches: 16, stages: [{node: a1, layers: {first: 0, end: 8}}]}
  - {microBatches: 16, stages: [{node: b2, layers: {first: 0, end: 8}}]}
failed: [a1, b1]
`

// 7.2 GB over 12.5 MB a second take ten minutes, whoever says so, and whether the file lists the pair.
func TestAPairHasOnePriceForCandidatesTheSummaryAndEachNode(t *testing.T) {
	const lastPair, fallback = "[a2, b1], roundTrip: 30ms, bandwidth: 100Mbit/s}\n", "  default: {roundTrip: 1ms, bandwidth: 10Gbit/s}\n"
	const want = 8 * 900 * (1 << 20) / 12.5e6
	for name, text := range map[string]string{
		"a default and sites": twoSites,
		"a default and each pair": strings.Replace(twoSites, lastPair,
			lastPair+"    - {between: [a2, b2], roundTrip: 30ms, bandwidth: 100Mbit/s}\n", 1),
		"sites alone": strings.Replace(twoSites, fallback, "", 1),
		"a default for most pairs, and sites": strings.NewReplacer("    - {between: [a1, b2], roundTrip: 30ms, bandwidth: 100Mbit/s}\n", "",
			"    - {between: [a2, b1], roundTrip: 30ms, bandwidth: 100Mbit/s}\n", "").Replace(twoSites),
	} {
		file := filepath.Join(t.TempDir(), "two.yaml")
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		q, err := load(file)
		if err != nil {
			t.Fatal(err)
		}
		answer, err := q.answer()
		if err != nil {
			t.Fatal(err)
		}
		proposed := q.restoration(events.Proposal{Plan: answer.Plan})
		seconds, err := restorer.FetchSeconds(proposed, answer.Plan)
		if err != nil {
			t.Fatal(err)
		}
		taken, summary, node := answer.Plan.Considered[0].TransitionSeconds, answer.Plan.Predicted.TransitionSeconds, seconds["a2"]
		for who, got := range map[string]float64{"the candidate": taken, "the summary": summary, "the node": node} {
			if math.Abs(got-want) > want/100 {
				t.Errorf("%s: %s says %.4g s, expected %.4g", name, who, got, want)
			}
		}
	}
}
