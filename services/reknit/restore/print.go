package restore

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/reknit/reknit/events"
	"github.com/reknit/reknit/services/reknit/tell"
)

// report writes an answer for people.
func report(w io.Writer, q question, a answer) {
	fmt.Fprintf(w, "Restoration of %s, generation %d to %d: %s\n", q.to.Cluster, q.from.Generation, q.to.Generation,
		q.changes())
	for _, assumed := range q.assumed {
		fmt.Fprintf(w, "  (%s)\n", assumed)
	}
	fmt.Fprintln(w)
	ways(w, a)
	fmt.Fprintln(w, "\nMoves (layers counted from 0, both ends included); seconds as if each node fetched alone")
	q.moves(w, a)
	fmt.Fprintln(w, "\nTransfers, all at once; the seconds of each are those it would take alone")
	transfers(w, a)
	fmt.Fprintln(w, "\nAll-reduce: groups of one round at a time")
	reduced(w, a)
}

// changes tells in a line who is lost, starts empty or is new.
func (q *question) changes() string {
	var lost, joined []string
	for _, member := range q.from.Nodes {
		if _, lives := q.to.Member(member.Node); !lives {
			lost = append(lost, member.Node)
		}
	}
	for _, member := range q.to.Nodes {
		if q.begins(member) {
			joined = append(joined, member.Node)
		}
	}
	var parts []string
	if len(lost) > 0 {
		parts = append(parts, "lost "+strings.Join(lost, ", "))
	}
	if len(joined) > 0 {
		parts = append(parts, "joined "+strings.Join(joined, ", "))
	}
	if len(parts) == 0 {
		return "the same nodes"
	}
	return strings.Join(parts, "; ")
}

func ways(w io.Writer, a answer) {
	table := tell.Table(w)
	fmt.Fprintln(table, "way\tbytes\tseconds\twhat it does")
	for _, way := range []struct {
		name   string
		figure figure
		says   string
	}{
		{"restoration", a.figures.Restoration, "matched to what they hold, from all who hold it"},
		{"restart", a.Restart, "every place reads all its layers from a store nobody waits for"},
		{"rank order", a.RankOrder, "nodes keep their order instead of being matched"},
		{"single source", a.SingleSource, "each layer comes from the first of its holders"},
	} {
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\n", way.name, tell.Bytes(way.figure.Bytes), tell.Seconds(way.figure.Seconds),
			way.says)
	}
	table.Flush()
}

// moves lists the nodes that keep something else, who keeps nothing any more included.
func (q *question) moves(w io.Writer, a answer) {
	table, none := tell.Table(w), true
	for _, member := range a.Plan.Nodes {
		begins := q.begins(member)
		if slices.Equal(q.from.UnitsOf(member.Node), a.Plan.UnitsOf(member.Node)) && !begins {
			continue
		}
		if none {
			fmt.Fprintln(table, "node\twas\tbecomes\tfetches\tseconds")
		}
		none = false
		before := placed(q.from, member.Node)
		if begins {
			before = "new"
		}
		fetches := "nothing"
		if fetch, lacks := a.fetches[member.Node]; lacks {
			fetches = tell.Bytes(fetch.Bytes) + "\t" + tell.Seconds(fetch.Seconds)
		}
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\n", member.Node, before, placed(a.Plan, member.Node), fetches)
	}
	table.Flush()
	if none {
		fmt.Fprintln(w, "  nobody")
	}
}

// begins reports whether a member holds nothing yet: it joined, or its process is another one.
func (q *question) begins(member events.Member) bool {
	before, was := q.from.Member(member.Node)
	return !was || before.Incarnation != member.Incarnation
}

// placed says where a node is in a plan.
func placed(plan events.Plan, node string) string {
	for p, pipeline := range plan.Pipelines {
		for s, stage := range pipeline.Stages {
			if stage.Node == node {
				place := fmt.Sprintf("pipeline %d, stage %d: %s", p, s, tell.Layers(stage.Layers))
				if plan.Partitions() > 0 {
					place += ", " + tell.Partitions(pipeline.Partitions)
				}
				return place
			}
		}
	}
	if _, member := plan.Member(node); member {
		return "spare"
	}
	return "new"
}

func transfers(w io.Writer, a answer) {
	migration := a.Plan.Migration
	if len(migration.Transfers) == 0 {
		fmt.Fprintln(w, "  nothing")
		return
	}
	table, what, name := tell.Table(w), "layer", func(row int) string { return fmt.Sprint(row) }
	if a.Plan.Partitions() > 0 {
		what, name = "what", func(row int) string { return events.UnitName(row, a.Plan.LayerCount()) }
	}
	fmt.Fprintln(table, what+"\tto\tbytes\tseconds\tfrom: shards (bytes)")
	for i, transfer := range migration.Transfers {
		var sources []string
		for _, source := range transfer.Sources {
			bytes := sourceBytes(source, transfer, migration.ShardBytes)
			sources = append(sources, fmt.Sprintf("%s %d (%s)", source.Node, source.Shards.Count(), tell.Bytes(bytes)))
		}
		tell.Row(table, strings.Join(sources, ", "), 60, name(transfer.Unit), transfer.To, tell.Bytes(transfer.Bytes),
			tell.Seconds(a.transferSeconds[i]))
	}
	table.Flush()
}

func reduced(w io.Writer, a answer) {
	if len(a.Plan.Sync.Rounds) == 0 {
		fmt.Fprintln(w, "  none")
		return
	}
	table := tell.Table(w)
	fmt.Fprintln(table, "round\tlayers\tbytes\tseconds\tnodes")
	for i, round := range a.Plan.Sync.Rounds {
		for g, group := range round.Groups {
			name := ""
			if g == 0 {
				name = fmt.Sprint(i + 1)
			}
			tell.Row(table, strings.Join(group.Nodes, " "), 60, name, tell.Layers(group.Layers),
				tell.Bytes(a.AllReduce.GroupBytes[i][g]), tell.Seconds(a.AllReduce.GroupSeconds[i][g]))
		}
	}
	table.Flush()
	fmt.Fprintf(w, "%s in rounds; no schedule takes less than %s\n", tell.Seconds(a.AllReduce.Seconds),
		tell.Seconds(a.AllReduce.SecondsLowerBound))
}
