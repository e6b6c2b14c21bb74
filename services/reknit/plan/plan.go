// Package plan answers "what if": it reads nodes, links, model and changes from a file or from a live cluster's log,
// has the planner and the restorer plan as they would, and shows the plan and why no other was taken.
package plan

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/reknit/reknit/events"
	planner "github.com/reknit/reknit/services/planner/machine"
	"github.com/reknit/reknit/services/reknit/cluster"
	"github.com/reknit/reknit/services/reknit/tell"
)

// options are the flags of `reknit plan`.
type options struct {
	file            string
	cluster, url    string
	failed, leaving nodeList
	json, why       bool
}

// nodeList is nodes joined by commas.
type nodeList []string

func (l *nodeList) String() string { return strings.Join(*l, ",") }

func (l *nodeList) Set(text string) error {
	*l = append(*l, strings.Split(text, ",")...)
	return nil
}

const help = `Usage: reknit plan --file cluster.yaml [--why | --json]
       reknit plan [--cluster NAME] [--nats URL] [--failed n1,n2] [--leaving n3] [--why | --json]

Plans as the services would, and changes nothing. The file says which nodes, links and layers there are
and what happens to them, and needs no server; services/reknit/plan/README.md lists its keys, and
services/reknit/plan/testdata/opticks.yaml is one to copy. For a live cluster the log says all that.
--cluster is needed only where several share one server.

`

const exits = `
Exit status: 0 a plan was found, or waiting is better; 1 none exists or the log cannot be read (the reason is printed),
2 the flags or the file are wrong.
`

// Run does what `reknit plan` is asked to. It fails with a tell.UsageError where the arguments or the file are wrong,
// with flag.ErrHelp after it has printed help, and otherwise with the reason why there is no plan.
func Run(arguments []string, w io.Writer) error {
	o, err := parse(arguments, w)
	if err != nil {
		return err
	}
	q, err := o.question()
	if err != nil {
		return err
	}
	answer, err := q.answer()
	var deferred planner.Deferred
	switch isDeferred := errors.As(err, &deferred); {
	case isDeferred && o.json:
		return document(w, deferred.Deferral)
	case isDeferred:
		reportWaiting(w, q, deferred.Deferral, o.why)
		return nil
	case err != nil:
		return err
	case o.json:
		return document(w, answer.Plan)
	}
	return report(w, q, answer, o.why)
}

func document(w io.Writer, what any) error {
	encoder := json.NewEncoder(w)
	encoder.SetIndent("", "  ")
	return encoder.Encode(what)
}

// question comes from the file or from the log of a live cluster.
func (o options) question() (Question, error) {
	if o.file != "" {
		q, err := load(o.file)
		if err != nil {
			return q, tell.UsageError{Err: err}
		}
		return q, q.planBefore()
	}
	if o.cluster == "" {
		only, err := onlyCluster(o.url)
		if err != nil {
			return Question{}, err
		}
		o.cluster = only
	}
	q, err := ask(o.url, o.cluster)
	if err != nil {
		return q, err
	}
	if err := errors.Join(q.lose(events.ChangeFailure, o.failed), q.lose(events.ChangeLeave, o.leaving)); err != nil {
		return q, tell.UsageError{Err: err}
	}
	return q, nil
}

// parse reads the flags. An error names the flag and what was expected.
func parse(arguments []string, w io.Writer) (options, error) {
	var o options
	flags := flag.NewFlagSet("reknit plan", flag.ContinueOnError)
	flags.StringVar(&o.file, "file", "", "the cluster, in YAML")
	flags.StringVar(&o.cluster, "cluster", "", "a live cluster: plan what its log says now; without --file the only one there is")
	flags.StringVar(&o.url, "nats", "nats://127.0.0.1:4222", "where the live cluster's NATS listens")
	flags.Var(&o.failed, "failed", "nodes of the live cluster to plan without, as if they failed: n1,n2")
	flags.Var(&o.leaving, "leaving", "likewise, as if they left in order")
	flags.BoolVar(&o.why, "why", false, "list every candidate with its figures and why it lost")
	flags.BoolVar(&o.json, "json", false, "print the plan document")
	err := tell.Parse(flags, arguments, w, help, exits, func() error { return o.check() })
	return o, err
}

func (o options) check() error {
	switch {
	case o.file != "" && o.cluster != "":
		return errors.New("--file: expected without --cluster; reknit plan --help tells more")
	case o.cluster != "" && !events.Token(o.cluster):
		return fmt.Errorf("--cluster: expected %s, got %q", cluster.Tokens, o.cluster)
	case o.file != "" && len(o.failed)+len(o.leaving) > 0:
		return errors.New("--failed, --leaving: expected without --file; a file has keys for them")
	case o.json && o.why:
		return errors.New("--why: expected without --json, whose document lists the candidates")
	}
	return nil
}

// load reads a question from a file. An error names the field and what was expected.
func load(path string) (Question, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return Question{}, err
	}
	var f file
	d, err := cluster.Decode(path, data, &f.File)
	if err != nil {
		return Question{}, err
	}
	return f.question(d, data)
}
