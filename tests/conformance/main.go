// Command conformance solves sample cases with our packages and says where an answer is not as good as it should be.
package main

import (
	"flag"
	"fmt"
	"io"
	"os"
)

func main() { os.Exit(run(os.Args[1:], os.Stdout, os.Stderr)) }

// run prints an answer per case on out and what is wrong on complaints; it returns the exit status: 1 where an answer
// is wrong, a file cannot be read, or there is nothing to solve.
func run(arguments []string, out, complaints io.Writer) int {
	flags := flag.NewFlagSet("conformance", flag.ContinueOnError)
	flags.SetOutput(complaints)
	folder := flags.String("cases", "", "`folder` with the case files (*.json)")
	requireAll := flags.Bool("require-all", false, "fail where a kind of case is not solved yet")
	if err := flags.Parse(arguments); err != nil {
		return 2
	}
	if *folder == "" || flags.NArg() > 0 {
		fmt.Fprintln(complaints, "-cases: expected a folder with case files, and no other argument")
		return 2
	}
	session := session{out: out, complaints: complaints, tallies: map[string]*tally{}}
	if err := session.solveFolder(*folder); err != nil {
		fmt.Fprintln(complaints, err)
		return 1
	}
	session.summarise()
	if session.faults > 0 || *requireAll && session.unsolved > 0 {
		return 1
	}
	return 0
}
