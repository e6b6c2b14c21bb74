// Package restore shows what it takes to get from one plan to another: who becomes whom, what comes from whom, the
// all-reduce rounds, and what naive ways would cost. It asks the restorer's machine, and no server.
package restore

import (
	"encoding/json"
	"errors"
	"flag"
	"io"
	"time"

	"github.com/reknit/reknit/events"
	"github.com/reknit/reknit/services/reknit/tell"
)

// options are the flags of `reknit restore`.
type options struct {
	from, to, links string
	json            bool
}

const help = `Usage: reknit restore --from plan.json --to plan.json [--links cluster.yaml] [--json]

Says who becomes whom, what moves from whom and how long it takes, as the restorer would, beside what naive
ways would cost. Plans are documents as reknit plan --json prints them: --from is in force and its nodes hold
the layers of their places (of partitioned optimizer state what their pipelines keep); who is missing among the
nodes of --to is lost and gives nothing, who is new holds nothing. services/reknit/restore/README.md tells more.

`

const exits = `
Exit status: 0 it can be done, 1 it cannot (the reason is printed), 2 the flags or a file are wrong.
`

// Run does what `reknit restore` is asked to. It fails with a tell.UsageError where the arguments or the files are
// wrong, with flag.ErrHelp after it has printed help, and otherwise with the reason why the plan cannot be restored.
func Run(arguments []string, w io.Writer) error {
	o, err := parse(arguments, w)
	if err != nil {
		return err
	}
	q, err := o.question()
	if err != nil {
		return tell.UsageError{Err: err}
	}
	answer, err := q.answer()
	if err != nil {
		return err
	}
	if o.json {
		// As the restorer says it, empty lists are lists; encoding/json alone would make them null.
		restorer := events.Speaker{Source: "/restorer", Cluster: q.to.Cluster}
		restorer.First(time.Unix(0, 0), "what-if", events.RestorationPlanned, answer.Negotiation, &answer.Restoration)
		encoder := json.NewEncoder(w)
		encoder.SetIndent("", "  ")
		return encoder.Encode(document{answer.Restoration, answer.figures, q.assumed})
	}
	report(w, q, answer)
	return nil
}

// document is a restoration as in the event restoration.planned, and what else there is to say.
type document struct {
	events.Restoration
	Figures figures  `json:"figures"`
	Assumed []string `json:"assumed,omitempty"`
}

// parse reads the flags. An error names the flag and what was expected.
func parse(arguments []string, w io.Writer) (options, error) {
	var o options
	flags := flag.NewFlagSet("reknit restore", flag.ContinueOnError)
	flags.StringVar(&o.from, "from", "", "the plan in force, in JSON")
	flags.StringVar(&o.to, "to", "", "the plan wanted, in JSON; the restorer may let its nodes trade places")
	flags.StringVar(&o.links, "links", "",
		"a cluster's file as reknit plan reads it, in YAML or JSON: of its keys, nodes, links and model count")
	flags.BoolVar(&o.json, "json", false, "print the restoration document")
	err := tell.Parse(flags, arguments, w, help, exits, func() error { return o.check() })
	return o, err
}

func (o options) check() error {
	switch {
	case o.from == "":
		return errors.New("--from: expected the file of the plan in force; reknit restore --help tells more")
	case o.to == "":
		return errors.New("--to: expected the file of the plan wanted; reknit restore --help tells more")
	}
	return nil
}
