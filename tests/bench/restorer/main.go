// Command restorer measures the restorer beside what it replaces.
package main

import (
	"flag"
	"fmt"
	"os"

	"github.com/reknit/reknit/tests/bench/figures"
)

// settings are what the command line may change.
type settings struct {
	cases    string // directory of fetch.json; empty: seeded fetches only
	literal  int64  // most shards that are handed out one by one
	matrices int    // largest matrix
}

// tables are measured and printed in this order.
var tables = []struct {
	title   string
	measure func(*figures.Report, settings) error
}{
	{"assigning nodes to places, a cost for every pair", assignments},
	{"who becomes whom", migrations},
	{"a model of thousands of layers", manyLayers},
	{"shards of one replica from its neighbours", shards},
	{"into how large shards a state is cut", shardSizes},
	{"several nodes fetch at once", fetches},
	{"all-reduce of pipelines that are cut differently", allReduces},
}

func main() {
	file := flag.String("json", "", "write the rows to this file")
	var s settings
	flag.StringVar(&s.cases, "cases", "", "take the fetches of fetch.json in this directory, too")
	flag.Int64Var(&s.literal, "literal", 1e8,
		"most shards that the paper's greedy hands out one by one; 1e8 take some GiB")
	flag.IntVar(&s.matrices, "matrices", 4096, "rows of the largest matrix to assign")
	flag.Parse()
	if err := run(*file, s); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(file string, s settings) error {
	var r figures.Report
	for _, table := range tables {
		fmt.Println(table.title)
		fmt.Printf("  %-46s %12s %12s %9s %12s  %s\n", "", "ours", "baseline", "ratio", "target", "holds")
		first := len(r.Rows)
		if err := table.measure(&r, s); err != nil {
			return fmt.Errorf("%s: %w", table.title, err)
		}
		for _, row := range r.Rows[first:] {
			fmt.Println(line(row))
		}
		fmt.Println()
	}
	return r.Finish(file)
}

// line is a row of a table. Its target is a most, or how many times better than the baseline it must be.
func line(row figures.Row) string {
	if row.Skipped != "" {
		return fmt.Sprintf("  %-46s skipped: %s", row.Figure, row.Skipped)
	}
	baseline, ratio, target := "", "", ""
	if row.Baseline > 0 {
		baseline, ratio = fmt.Sprintf("%.6g", row.Baseline), fmt.Sprintf("%.4g", row.Ratio)
	}
	switch {
	case row.Target > 0 && row.LeastRatio > 0:
		target = fmt.Sprintf("%.4g, %.4gx", row.Target, row.LeastRatio)
	case row.Target > 0:
		target = fmt.Sprintf("%.6g", row.Target)
	case row.LeastRatio > 0:
		target = fmt.Sprintf("%.4gx", row.LeastRatio)
	}
	holds := map[bool]string{true: "yes", false: "NO"}[row.Holds]
	return fmt.Sprintf("  %-46s %12.6g %12s %9s %12s  %-4s %s, %s", row.Figure, row.Ours, baseline, ratio, target,
		holds, row.Unit, row.BaselineName)
}
