package plan

import (
	"fmt"
	"io"
	"math"
	"slices"
	"strings"

	"github.com/reknit/reknit/events"
	"github.com/reknit/reknit/services/reknit/tell"
	restorer "github.com/reknit/reknit/services/restorer/machine"
)

// report writes an answer for people; why adds every candidate that was weighed.
func report(w io.Writer, q Question, answer events.Restoration, why bool) error {
	plan := answer.Plan
	seconds, err := restorer.FetchSeconds(q.restoration(events.Proposal{Plan: plan}), plan)
	if err != nil {
		return err
	}
	heading(w, q, answer)
	fmt.Fprintln(w, "\nPipelines (layers counted from 0, both ends included)")
	Picture(w, plan)
	reroutes(w, plan)
	fmt.Fprintln(w, "\nNodes")
	nodes(w, q, plan)
	spares(w, plan, q.Request.Nodes)
	if q.Request.Current != nil {
		fmt.Fprintln(w, "\nChanges of place (seconds as if nobody else fetched)")
		changes(w, q, plan, seconds)
	}
	fmt.Fprintln(w, "\nMoves")
	moves(w, plan)
	fmt.Fprintln(w, "\nAll-reduce: groups of one round at a time, nodes as they stand in a ring")
	rounds(w, plan)
	if why {
		Candidates(w, plan.Considered, plan.Predicted.Unmeasured)
		ofReturn(w, q)
	}
	return nil
}

func reroutes(w io.Writer, plan events.Plan) {
	if len(plan.Reroutes) > 0 {
		fmt.Fprintln(w, "\nRerouted")
	}
	table := tell.Table(w)
	for _, reroute := range plan.Reroutes {
		layers := ""
		if reroute.Layers != (events.Range{}) {
			layers = "\t" + tell.Layers(reroute.Layers)
		}
		fmt.Fprintf(table, "%s\ttakes %s of %s\tstage %d%s\n", reroute.To,
			tell.Count(reroute.MicroBatches, "micro-batch", "micro-batches"), reroute.From, reroute.Stage, layers)
	}
	table.Flush()
}

func nodes(w io.Writer, q Question, plan events.Plan) {
	table := tell.Table(w)
	fmt.Fprintln(table, "node\tplace\tlayers\tspeed\tpeak memory\tlimit\tfilled")
	for _, node := range q.Request.Nodes {
		place, layers, _ := placed(plan, node.Node)
		peak := plan.Predicted.PeakBytes[node.Node]
		fmt.Fprintf(table, "%s\t%s\t%s\tx %s\t%s\t%s\t%.0f%%\n", node.Node, place, layers, tell.Figure(node.SpeedFactor),
			tell.Bytes(peak), tell.Bytes(node.MemoryBytes), 100*float64(peak)/float64(node.MemoryBytes))
	}
	table.Flush()
}

// Idle tells of each node without a place because of its links what it would need.
func Idle(w io.Writer, plan events.Plan) { spares(w, plan, nil) }

// spares tells why nodes have no place: their links, or memory, as far as some are known.
func spares(w io.Writer, plan events.Plan, nodes []events.Device) {
	why := map[string]string{}
	var names []string
	for _, idle := range plan.Idle {
		names, why[idle.Node] = append(names, idle.Node), idle.Why(plan.Predicted)
	}
	smallest := int64(math.MaxInt64)
	for _, peak := range plan.Predicted.PeakBytes {
		smallest = min(smallest, peak)
	}
	for _, node := range nodes {
		if _, isPlaced := plan.Holds(node.Node); !isPlaced && why[node.Node] == "" && node.MemoryBytes < smallest {
			names = append(names, node.Node)
			why[node.Node] = fmt.Sprintf("it has room for no stage: its memory is %s, and the smallest stage of the plan needs %s",
				tell.Bytes(node.MemoryBytes), tell.Bytes(smallest))
		}
	}
	if len(names) == 0 {
		return
	}
	fmt.Fprintln(w, "\nSpares")
	table := tell.Table(w)
	for _, name := range names {
		tell.Row(table, why[name], answerWidth, name)
	}
	table.Flush()
}

// placed says where a node is in a plan, and which layers and partitions of their optimizer state it keeps there.
func placed(plan events.Plan, node string) (place, layers, partitions string) {
	for p, pipeline := range plan.Pipelines {
		for s, stage := range pipeline.Stages {
			if stage.Node != node {
				continue
			}
			if plan.Partitions() > 0 {
				partitions = ", " + tell.Partitions(pipeline.Partitions)
			}
			return fmt.Sprintf("pipeline %d, stage %d", p, s), tell.Layers(stage.Layers), partitions
		}
	}
	return "spare", "-", ""
}

// changes tells what each node that keeps something else than under the plan in force was and becomes, and how much it
// fetches for that.
func changes(w io.Writer, q Question, plan events.Plan, seconds map[string]float64) {
	table, fetched := tell.Table(w), map[string]int64{}
	for _, transfer := range plan.Migration.Transfers {
		fetched[transfer.To] += transfer.Bytes
	}
	header := "node\twas\tkept\tbecomes\tfetches\tin\n"
	for _, member := range plan.Nodes {
		was, changed := q.was(member, plan)
		if !changed {
			continue
		}
		becomes, _, _ := placed(plan, member.Node)
		fmt.Fprintf(table, "%s%s\t%s\t%s\t%s\t%s\n", header, member.Node, was, becomes,
			tell.Bytes(fetched[member.Node]), tell.Seconds(seconds[member.Node]))
		header = ""
	}
	table.Flush()
	if header != "" {
		fmt.Fprintln(w, "  none")
	}
}

// was says which place a node had in the plan in force and what it kept there, and whether a plan changes that.
func (q *Question) was(member events.Member, plan events.Plan) (cells string, changed bool) {
	current := *q.Request.Current
	if before, lived := current.Member(member.Node); !lived || q.failed(before) {
		return "new\t-", true
	}
	place, layers, partitions := placed(current, member.Node)
	return place + "\t" + layers + partitions,
		!slices.Equal(current.UnitsOf(member.Node), plan.UnitsOf(member.Node))
}

// moves tells, for each receiver, its layers and the partitions of their optimizer state, and how much of them comes
// from whom.
func moves(w io.Writer, plan events.Plan) {
	if len(plan.Migration.Transfers) == 0 {
		fmt.Fprintln(w, "  nothing")
		return
	}
	table, layers, what := tell.Table(w), plan.LayerCount(), "layers"
	if plan.Partitions() > 0 {
		what = "what"
	}
	fmt.Fprintln(table, "to\t"+what+"\tbytes\tfrom")
	for _, member := range plan.Nodes {
		name := member.Node
		for kind := range 1 + plan.Partitions() {
			var received received
			for _, transfer := range plan.Migration.Transfers {
				if transfer.To == member.Node && transfer.Unit/layers == kind {
					received.add(transfer, plan.Migration.ShardBytes)
				}
			}
			if len(received.rows) > 0 {
				tell.Row(table, received.from(), 60, name, received.what(plan), tell.Bytes(received.bytes))
				name = ""
			}
		}
	}
	table.Flush()
}

// received sums what one node gets of one kind: layers, or one partition of their optimizer state.
type received struct {
	rows    []int
	bytes   int64
	sources []string
	of      map[string]int64
}

func (r *received) add(transfer events.Transfer, shardBytes int64) {
	r.rows = append(r.rows, transfer.Unit)
	r.bytes += transfer.Bytes
	if r.of == nil {
		r.of = map[string]int64{}
	}
	for _, source := range transfer.Sources {
		if !slices.Contains(r.sources, source.Node) {
			r.sources = append(r.sources, source.Node)
		}
		end := min(int64(source.Shards.End)*shardBytes, transfer.Bytes)
		r.of[source.Node] += end - int64(source.Shards.First)*shardBytes
	}
}

func (r *received) what(plan events.Plan) string {
	if plan.Partitions() == 0 {
		return tell.Runs(r.rows)
	}
	return tell.Rows(r.rows, plan.LayerCount())
}

func (r *received) from() string {
	var parts []string
	for _, source := range r.sources {
		parts = append(parts, fmt.Sprintf("%s %.0f%%", source, 100*float64(r.of[source])/float64(r.bytes)))
	}
	return strings.Join(parts, ", ")
}

func rounds(w io.Writer, plan events.Plan) {
	if len(plan.Sync.Rounds) == 0 {
		fmt.Fprintln(w, "  none: one pipeline has nobody to reduce with")
		return
	}
	table := tell.Table(w)
	for i, round := range plan.Sync.Rounds {
		for g, group := range round.Groups {
			name := ""
			if g == 0 {
				name = fmt.Sprintf("round %d", i+1)
			}
			tell.Row(table, strings.Join(group.Nodes, " "), 72, name, tell.Layers(group.Layers))
		}
	}
	table.Flush()
}

// Candidates are told with the transitions that were weighed: of the slowest fetch at the usual bandwidth. The
// transition of the plan taken is known better by now, and stands in the heading. Candidates have no seconds if nothing
// was measured.
func Candidates(w io.Writer, considered []events.Candidate, unmeasured bool) {
	fmt.Fprintln(w, "\nCandidates, best first (predicted; transitions at the usual bandwidth, samples/s with them)")
	table := tell.Table(w)
	fmt.Fprintln(table, "policy\tpipelines\tstep\ttransition\tsamples/s\tlost because of")
	for i, candidate := range considered {
		lost := candidate.Rejected
		if i == 0 {
			lost = "- (taken)"
		}
		step, score := tell.Seconds(candidate.StepSeconds), fmt.Sprintf("%.4g", candidate.Score)
		shape, transition := tell.Folded(candidate.Shape), tell.Seconds(candidate.TransitionSeconds)
		if unmeasured {
			step, score = "-", "-"
		}
		if !candidate.Weighed() {
			shape, step, transition, score = "-", "-", "-", "-"
		}
		tell.Row(table, lost, 42, candidate.Policy, shape, step, transition, score)
	}
	table.Flush()
}
