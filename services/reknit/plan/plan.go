// Package plan answers "what if": it reads nodes, links, model and changes from a file or from a live cluster's log,
// has the planner and the restorer plan as they would, and shows the plan and why no other was taken.
package plan

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"github.com/reknit/reknit/events"
	"github.com/reknit/reknit/services/monitor/machine/overlay"
	planner "github.com/reknit/reknit/services/planner/machine"
	"github.com/reknit/reknit/services/reknit/cluster"
	"github.com/reknit/reknit/services/reknit/connect"
	"github.com/reknit/reknit/services/reknit/tell"
)

// options are the flags of `reknit plan`.
type options struct {
	file            string
	live            connect.Flags
	failed, leaving []string
	json, why       bool
}

const help = `Previews what the services would plan, and changes nothing. The file says which nodes, links and layers there are
and what happens to them, and needs no server; services/reknit/plan/README.md lists its keys, and
services/reknit/plan/testdata/opticks.yaml is one to copy. For a live cluster the log says all that.
--cluster is needed only where several live at one server.

Exit status: 0 a plan was found, or waiting is better; 1 none exists or the log cannot be read (the reason is printed),
2 the flags or the file are wrong, 4 NATS lets nobody in.`

// Command is `reknit plan`. It fails with a tell.UsageError where the arguments or the file are wrong, and otherwise with
// the reason why there is no plan.
func Command() *cobra.Command {
	var o options
	command := tell.Command(&cobra.Command{
		Use: "plan", Short: "preview what would be planned, for a file or a live cluster, and why", Long: help,
		Example: "  reknit plan --file cluster.yaml --why\n  reknit plan --failed n1,n2 --leaving n3",
		RunE:    func(c *cobra.Command, _ []string) error { return o.run(c.Context(), c.OutOrStdout()) },
	})
	flags := command.Flags()
	flags.StringVar(&o.file, "file", "", "the cluster, in YAML; - is standard input")
	o.live.Add(flags)
	flags.StringSliceVar(&o.failed, "failed", nil, "nodes of the live cluster to plan without, as if they failed: n1,n2")
	flags.StringSliceVar(&o.leaving, "leaving", nil, "likewise, as if they left in order")
	flags.BoolVar(&o.why, "why", false, "list every candidate with its figures and why it lost")
	flags.BoolVar(&o.json, "json", false, "print the plan document")
	return command
}

func (o options) run(ctx context.Context, w io.Writer) error {
	if err := o.check(); err != nil {
		return tell.UsageError{Err: err}
	}
	q, names, err := o.question(ctx)
	if err != nil {
		return err
	}
	if !o.json {
		w = tell.Showing(w, names.Shown)
	}
	answer, err := heeding(ctx, q.answer)
	var deferred planner.Deferred
	switch isDeferred := errors.As(err, &deferred); {
	case isDeferred && o.json:
		return tell.Document(w, deferred.Deferral)
	case isDeferred:
		reportWaiting(w, q, deferred.Deferral, o.why)
		return nil
	case err != nil:
		return fmt.Errorf("no plan would be possible: %w", err)
	case o.json:
		return tell.Document(w, answer.Plan)
	}
	return report(w, q, answer, o.why)
}

// question comes from the file or from the log of a live cluster, which knows what people call its nodes.
func (o options) question(ctx context.Context) (q Question, names *overlay.Names, err error) {
	names = overlay.NewNames()
	if o.file != "" {
		if q, err = load(o.file); err != nil {
			return q, names, tell.UsageError{Err: err}
		}
		q, err = heeding(ctx, q.planBefore)
		return q, names, err
	}
	b, err := o.live.Open(ctx)
	if err != nil {
		return q, names, err
	}
	defer b.Close()
	if q, err = Ask(ctx, b); err != nil {
		return q, names, err
	}
	if names, err = connect.Names(ctx, b); err != nil {
		return q, names, err
	}
	failed, unclear := names.Nodes(o.failed)
	leaving, unclearToo := names.Nodes(o.leaving)
	if err = cmp.Or(unclear, unclearToo); err == nil {
		err = errors.Join(q.lose(events.ChangeFailure, failed), q.lose(events.ChangeLeave, leaving))
	}
	if err != nil {
		return q, names, tell.UsageError{Err: err}
	}
	if !o.json { // a document has no place for it
		err = q.takeLiving(ctx, b)
	}
	return q, names, err
}

func (o options) check() error {
	switch {
	case o.file != "" && o.live != connect.Flags{}:
		return errors.New("--file: expected without --cluster, and where NATS is; reknit plan --help tells more")
	case o.file != "" && len(o.failed)+len(o.leaving) > 0:
		return errors.New("--failed, --leaving: expected without --file; a file has keys for them")
	case o.json && o.why:
		return errors.New("--why: expected without --json, whose document lists the candidates")
	}
	return nil
}

// mostFile bounds what is read of a file: a plan of 1,000 nodes has some 200 KB.
const mostFile = 64 << 20

// contentOf reads a file, or standard input where it is "-".
func contentOf(path string) ([]byte, error) {
	file := os.Stdin
	if path != "-" {
		var err error
		if file, err = os.Open(path); err != nil {
			return nil, err
		}
		defer file.Close()
	}
	data, err := io.ReadAll(io.LimitReader(file, mostFile+1))
	if err == nil && len(data) > mostFile {
		err = fmt.Errorf("--file %s: expected at most %d bytes", path, mostFile)
	}
	return data, err
}

// load reads a question from a file. An error names the field and what was expected.
func load(path string) (Question, error) {
	data, err := contentOf(path)
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
