// Command bytes measures how fast shard parts travel.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"

	"github.com/reknit/reknit/tests/bench/figures"
)

func main() {
	file := flag.String("json", "", "write the rows to this file")
	repeat := flag.Int("repeat", 5, "how often each way is measured")
	only := flag.Int("mib", 0, "only objects of this size")
	serving := flag.Bool("serve", false, "be the other process")
	secured := flag.Bool("secured", false, "measure what TLS between nodes costs, and nothing else")
	kits := flag.String("kits", "", "of the nodes, where the other process serves over TLS, too")
	size := flag.Int("bytes", 0, "of the object that the other process serves")
	flag.Parse()
	ctx := context.Background()
	if *serving {
		exitOn(answer(ctx, *size, *kits))
		return
	}
	measure := bytesPath
	if *secured {
		measure = securedPath
	}
	var report figures.Report
	for _, mebibytes := range []int{64, 1024} {
		if *only != 0 && *only != mebibytes {
			continue
		}
		rows, err := measure(ctx, mebibytes<<20, *repeat)
		exitOn(err)
		if !*secured {
			row, err := giverMemory(ctx, mebibytes<<20)
			exitOn(err)
			rows = append(rows, row)
		}
		first := len(report.Rows)
		for _, row := range rows {
			report.Add(row)
		}
		for _, row := range report.Rows[first:] {
			fmt.Printf("%-30s %9.3f %-9s  %-13s %9.3f  ratio %5.2f of %4.2f\n",
				row.Figure, row.Ours, row.Unit, row.BaselineName, row.Baseline, row.Ratio, row.LeastRatio)
		}
	}
	exitOn(report.Finish(*file))
}

func exitOn(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
