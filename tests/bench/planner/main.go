// Command planner measures the planner beside what it replaces.
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"

	"github.com/reknit/reknit/tests/bench/figures"
)

func main() {
	file := flag.String("json", "", "write the rows to this file")
	cases := flag.String("cases", "", "take the networks of dtfm_networks.json in this directory")
	flag.Parse()
	var r figures.Report
	if err := run(&r, *cases); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	if err := r.Finish(*file); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(r *figures.Report, cases string) error {
	planning(r)
	if err := errors.Join(planningFree(r), recoveries(r), losses(r), noise(r)); err != nil {
		return err
	}
	gaps(r)
	networks, err := load(cases)
	if err != nil {
		return err
	}
	return placement(r, networks)
}
