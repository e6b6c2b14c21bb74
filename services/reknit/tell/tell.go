// Package tell is how a command that prints an answer reads its line and writes figures, layers and tables.
package tell

import (
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"

	"github.com/reknit/reknit/events"
)

// Bytes writes bytes with three digits.
func Bytes(bytes int64) string {
	value, unit := float64(bytes), "B"
	for _, next := range []string{"KiB", "MiB", "GiB", "TiB"} {
		if value < 999.5 { // which three digits make a thousand
			break
		}
		value, unit = value/1024, next
	}
	return fmt.Sprintf("%.3g %s", value, unit)
}

// Seconds writes seconds with four digits.
func Seconds(seconds float64) string {
	switch {
	case seconds == 0:
		return "0 s"
	case seconds < 1e-3:
		return fmt.Sprintf("%.4g us", seconds*1e6)
	case seconds < 1:
		return fmt.Sprintf("%.4g ms", seconds*1e3)
	case seconds < 9999.5:
		return fmt.Sprintf("%.4g s", seconds)
	}
	return fmt.Sprintf("%.0f s", seconds)
}

// Figure writes a number in three digits at most, without an exponent.
func Figure(number float64) string {
	short, _ := strconv.ParseFloat(strconv.FormatFloat(number, 'g', 3, 64), 64) // what was written is a number
	return strconv.FormatFloat(short, 'f', -1, 64)
}

// Layers writes layers with both ends included, as people count.
func Layers(layers events.Range) string {
	if layers.Count() == 1 {
		return fmt.Sprintf("layer %d", layers.First)
	}
	return fmt.Sprintf("layers %d-%d", layers.First, layers.End-1)
}

// IsKept reports whether a plan only keeps the one before: it is the reroute policy's, and nothing is rerouted.
func IsKept(plan events.Plan) bool { return plan.Policy == "reroute" && len(plan.Reroutes) == 0 }

// Policy names the policy of a plan.
func Policy(plan events.Plan) string {
	if IsKept(plan) {
		return "keeping the plan in force"
	}
	return plan.Policy
}

// Partitions writes numbers of partitions, both ends of runs included.
func Partitions(numbers []int) string {
	switch len(numbers) {
	case 0:
		return "no partition"
	case 1:
		return fmt.Sprintf("partition %d", numbers[0])
	}
	return "partitions " + Runs(slices.Clone(numbers))
}

// Rows writes rows of one kind of a model of so many layers, as "layers 2-3" or "partition 0 of layer 5".
func Rows(rows []int, layers int) string {
	of := make([]int, len(rows))
	for i, row := range rows {
		of[i] = row % layers
	}
	text := "layers " + Runs(of)
	if len(rows) == 1 {
		text = fmt.Sprintf("layer %d", of[0])
	}
	if kind := rows[0] / layers; kind > 0 {
		return fmt.Sprintf("partition %d of %s", kind-1, text)
	}
	return text
}

// Count writes a number of things, of which there may be one.
func Count(count int, one, many string) string {
	if count == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", count, many)
}

// Runs writes layers as runs, both ends included.
func Runs(layers []int) string {
	var runs []string
	slices.Sort(layers)
	for i := 0; i < len(layers); {
		end := i + 1
		for end < len(layers) && layers[end] == layers[end-1]+1 {
			end++
		}
		run := fmt.Sprint(layers[i])
		if end > i+1 {
			run += fmt.Sprintf("-%d", layers[end-1])
		}
		runs, i = append(runs, run), end
	}
	return strings.Join(runs, ",")
}

// Folded writes equal pipelines once: 3+3+2 as 2x3+2.
func Folded(shape string) string {
	lengths := strings.Split(shape, "+")
	var runs []string
	for i := 0; i < len(lengths); {
		end := i + 1
		for end < len(lengths) && lengths[end] == lengths[i] {
			end++
		}
		run := lengths[i]
		if end > i+1 {
			run = fmt.Sprintf("%dx%s", end-i, run)
		}
		runs, i = append(runs, run), end
	}
	return strings.Join(runs, "+")
}

// Aligned is a table of which Flush writes what was told of it.
type Aligned struct {
	io.Writer
	columns *tabwriter.Writer
}

// Flush writes the table.
func (a Aligned) Flush() error { return a.columns.Flush() }

// Table writes aligned columns, as wide as what is shown in them.
func Table(w io.Writer) Aligned {
	to, isShowing := w.(showing)
	if !isShowing {
		columns := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
		return Aligned{columns, columns}
	}
	columns := tabwriter.NewWriter(to.Writer, 0, 0, 2, ' ', 0)
	return Aligned{showing{columns, to.shown}, columns}
}

// Showing writes texts as shown makes them.
func Showing(w io.Writer, shown func(string) string) io.Writer { return showing{w, shown} }

type showing struct {
	io.Writer
	shown func(string) string
}

func (s showing) Write(text []byte) (int, error) {
	_, err := io.WriteString(s.Writer, s.shown(string(text)))
	return len(text), err
}

// Shown returns a text as w writes it.
func Shown(w io.Writer, text string) string {
	if to, is := w.(showing); is {
		return to.shown(text)
	}
	return text
}

// Row writes cells and then a text, which goes on below itself where it is wider than it may be.
func Row(table Aligned, text string, width int, cells ...string) {
	line := ""
	for _, word := range strings.Fields(Shown(table.Writer, text)) {
		if line != "" && len(line)+1+len(word) > width {
			fmt.Fprintf(table, "%s\t%s\n", strings.Join(cells, "\t"), line)
			cells, line = make([]string, len(cells)), ""
		}
		line = strings.TrimPrefix(line+" "+word, " ")
	}
	fmt.Fprintf(table, "%s\t%s\n", strings.Join(cells, "\t"), line)
}
