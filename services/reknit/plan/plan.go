// Package plan answers "what if" without a cluster: it reads nodes, links, model and changes from a file, has the
// planner and the restorer plan as they would, and shows the plan and why no other was taken.
package plan

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
)

// UsageError says that the flags or the file are wrong, not that there is no plan.
type UsageError struct{ error }

// options are the flags of `reknit plan`.
type options struct {
	file      string
	json, why bool
}

const help = `Usage: reknit plan --file cluster.yaml [--why] [--json]

Plans as the services would, without any server. The file says which nodes, links and
layers there are and what happens to them; services/reknit/plan/README.md lists its
keys, and services/reknit/plan/testdata/opticks.yaml is one to copy.

`

const exits = `
Exit status: 0 a plan was found, 1 none exists (the reason is printed), 2 the flags or the file are wrong.
`

// Run does what `reknit plan` is asked to. It fails with a UsageError where the arguments or the file are wrong, with
// flag.ErrHelp after it has printed help, and otherwise with the reason why there is no plan.
func Run(arguments []string, w io.Writer) error {
	o, err := parse(arguments, w)
	if errors.Is(err, flag.ErrHelp) {
		return err
	}
	if err != nil {
		return UsageError{err}
	}
	q, err := load(o.file)
	if err != nil {
		return UsageError{err}
	}
	if err := q.planBefore(); err != nil {
		return err
	}
	answer, err := q.answer()
	if err != nil {
		return err
	}
	if o.json {
		encoder := json.NewEncoder(w)
		encoder.SetIndent("", "  ")
		return encoder.Encode(answer.Plan)
	}
	report(w, q, answer, o.why)
	return nil
}

// parse reads the flags. An error names the flag and what was expected.
func parse(arguments []string, w io.Writer) (options, error) {
	var o options
	flags := flag.NewFlagSet("reknit plan", flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	flags.StringVar(&o.file, "file", "", "the cluster, in YAML")
	flags.BoolVar(&o.why, "why", false, "list every candidate with its figures and why it lost")
	flags.BoolVar(&o.json, "json", false, "print the plan document")
	err := flags.Parse(arguments)
	switch {
	case errors.Is(err, flag.ErrHelp):
		fmt.Fprint(w, help)
		flags.SetOutput(w)
		flags.PrintDefaults()
		fmt.Fprint(w, exits)
	case err == nil && flags.NArg() > 0:
		err = fmt.Errorf("expected flags only, got %q", flags.Arg(0))
	case err == nil && o.file == "":
		err = errors.New("--file: expected a cluster's file; reknit plan --help tells more")
	case err == nil && o.json && o.why:
		err = errors.New("--why: expected without --json, whose document lists the candidates")
	}
	return o, err
}

// load reads a question from a file. An error names the field and what was expected.
func load(path string) (Question, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return Question{}, err
	}
	var f file
	d, err := read(path, data, &f)
	if err != nil {
		return Question{}, err
	}
	return f.question(d, data)
}
