package plan

import (
	"strings"
	"testing"
)

// slowThird trains on three nodes, of which the third has slow links.
const slowThird = `cluster: dp
nodes: [{node: h1, memory: 23GiB}, {node: h2, memory: 23GiB, speed: 1170}, {node: far, memory: 23GiB}, {node: tiny, memory: 1MiB}]
links:
  default: {roundTrip: 50us, bandwidth: 800MB/s}
  measured:
    - {between: [h1, far], roundTrip: 10ms, bandwidth: 4MB/s}
    - {between: [h2, far], roundTrip: 10ms, bandwidth: 4MB/s}
model:
  layers: 1
  profile: {parameters: 4MiB, optimizer: 0MiB, gradients: 4MiB, activations: 1MiB, output: 1kB, forward: 7ms, backward: 13ms}
kind: data-parallel
globalBatch: 48
microBatch: 2
timeBetweenFailures: 8h
current:
  - {microBatches: 8, stages: [{node: h1, layers: {first: 0, end: 1}}]}
  - {microBatches: 8, stages: [{node: h2, layers: {first: 0, end: 1}}]}
  - {microBatches: 8, stages: [{node: far, layers: {first: 0, end: 1}}]}
`

func expectSays(t *testing.T, told string, all ...string) {
	t.Helper()
	for _, says := range all {
		if !strings.Contains(told, says) {
			t.Errorf("expected %q in\n%s", says, told)
		}
	}
}

func TestTheTransitionCountsWhatTheCandidatesWereChargedBesidesTheTransfer(t *testing.T) {
	moves := strings.Replace(text(t, example("failure")), "minReplicas: 1", "minReplicas: 2\nrestart: 1h", 1)
	told := printed(t, "--file", saved(t, moves), "--why")
	expectSays(t, told, " once all stopped, 3600 s besides (restart)\n")
	stays := strings.Replace(moves, "minReplicas: 2\nrestart: 1h", "minReplicas: 1\nrestart: 5h\nswitchTime: 2s", 1)
	told = printed(t, "--file", saved(t, stays))
	expectSays(t, told, "transition    2 s ", " where nothing moves (switchTime)\n")
}

func TestADataParallelPlanIsComparedWithTheOneInForce(t *testing.T) {
	told := printed(t, "--file", saved(t, slowThird))
	expectSays(t, told, "in force ", "% shorter for 0 B that move")
	if strings.Contains(told, "was not weighed") {
		t.Errorf("expected a comparison in\n%s", told)
	}
}

func TestANodeWithoutAPlaceIsToldWhy(t *testing.T) {
	told := printed(t, "--file", saved(t, slowThird))
	expectSays(t, told, "\nSpares\n", "far   its links are too slow", "tiny  it has room for no stage: its memory is 1 MiB, and the smallest")
}

func TestASpeedIsToldWithoutAnExponent(t *testing.T) {
	expectSays(t, printed(t, "--file", saved(t, slowThird)), " x 1170 ", " x 1 ")
}
