package plan

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/reknit/reknit/events"
	"github.com/reknit/reknit/services/reknit/tell"
)

// columns is how wide a picture may be: a terminal of usual width beside something else.
const columns = 100

// Picture draws a row a pipeline and a box a stage. All boxes are as wide as the widest, so that stages stand below
// each other; a pipeline that is too long goes on in another row.
func Picture(w io.Writer, plan events.Plan) {
	labels, boxes := labels(plan), boxes(w, plan)
	label, box := 0, 0
	for p := range boxes {
		label = max(label, widest(labels[p]))
		for _, lines := range boxes[p] {
			box = max(box, widest(lines))
		}
	}
	perRow := max(1, (columns-label-2)/(box+len("|  |")+len(arrow)))
	for p := range boxes {
		side := labels[p]
		for row := range slices.Chunk(boxes[p], perRow) {
			last := &row[len(row)-1] == &boxes[p][len(boxes[p])-1]
			drawRow(w, side, label, row, box, last)
			side = nil
		}
	}
}

const arrow = "-->"

// drawRow draws boxes of one pipeline. The arrow after the last box of a row leads into the next row.
func drawRow(w io.Writer, side []string, label int, row [][]string, box int, last bool) {
	edge := "+" + strings.Repeat("-", box+2) + "+"
	gap := strings.Repeat(" ", len(arrow))
	margin := func(i int) string {
		text := ""
		if i >= 0 && i < len(side) {
			text = side[i]
		}
		return fmt.Sprintf("%-*s  ", label, text)
	}
	edges := strings.Join(slices.Repeat([]string{edge}, len(row)), gap)
	fmt.Fprintln(w, strings.TrimRight(margin(-1)+edges, " "))
	for i := range row[0] {
		line := margin(i)
		for b, lines := range row {
			line += fmt.Sprintf("| %-*s |", box, lines[i])
			switch {
			case i == 0 && (b < len(row)-1 || !last):
				line += arrow
			case b < len(row)-1:
				line += gap
			}
		}
		fmt.Fprintln(w, line)
	}
	fmt.Fprintln(w, strings.TrimRight(margin(len(row[0]))+edges, " "))
}

func labels(plan events.Plan) [][]string {
	labels, partitioned := make([][]string, len(plan.Pipelines)), plan.Partitions() > 0
	for p, pipeline := range plan.Pipelines {
		labels[p] = []string{
			fmt.Sprintf("pipeline %d", p), tell.Count(pipeline.MicroBatches, "micro-batch", "micro-batches"),
		}
		if partitioned {
			labels[p] = append(labels[p], tell.Partitions(pipeline.Partitions))
		}
	}
	return labels
}

func boxes(w io.Writer, plan events.Plan) [][][]string {
	boxes := make([][][]string, len(plan.Pipelines))
	for p, pipeline := range plan.Pipelines {
		for _, stage := range pipeline.Stages {
			name := tell.Shown(w, stage.Node)
			if _, lives := plan.Member(stage.Node); !lives {
				name += " (lost)"
			}
			boxes[p] = append(boxes[p], []string{name, tell.Layers(stage.Layers)})
		}
	}
	return boxes
}

func widest(lines []string) int {
	width := 0
	for _, line := range lines {
		width = max(width, len(line))
	}
	return width
}
