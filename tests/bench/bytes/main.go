// Command bytes measures how fast shard parts travel.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
)

// row is one figure.
type row struct {
	Figure       string  `json:"figure"`
	Unit         string  `json:"unit"`
	Ours         float64 `json:"ours"`
	Baseline     float64 `json:"baseline"`
	BaselineName string  `json:"baselineName"`
	Ratio        float64 `json:"ratio"`  // above 1 where ours is better
	Target       float64 `json:"target"` // of the ratio at least; 0 for none
	Holds        bool    `json:"holds"`
}

func main() {
	file := flag.String("json", "", "write the rows to this file")
	repeat := flag.Int("repeat", 5, "how often each way is measured")
	only := flag.Int("mib", 0, "only objects of this size")
	serving := flag.String("serve", "", "be the other process: file or memory")
	size := flag.Int("bytes", 0, "of the object that the other process serves")
	flag.Parse()
	ctx := context.Background()
	if *serving != "" {
		exitOn(answer(ctx, *size, *serving == "memory"))
		return
	}
	var rows []row
	for _, mebibytes := range []int{64, 1024} {
		for _, memory := range []bool{false, true} {
			if *only != 0 && *only != mebibytes {
				continue
			}
			measured, err := bytesPath(ctx, mebibytes<<20, memory, *repeat)
			exitOn(err)
			for _, r := range measured {
				fmt.Printf("%-28s %-10s %9.2f  %-10s %9.2f  ratio %5.2f  target %4.2f  %v\n", r.Figure, r.Unit, r.Ours, r.BaselineName, r.Baseline, r.Ratio, r.Target, r.Holds)
			}
			rows = append(rows, measured...)
		}
	}
	if *file != "" {
		text, err := json.MarshalIndent(rows, "", "  ")
		exitOn(err)
		exitOn(os.WriteFile(*file, append(text, '\n'), 0o644))
	}
}

func exitOn(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
