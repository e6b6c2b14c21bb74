package inventory

import (
	"context"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/reknit/reknit/services/monitor/machine/overlay"
	"github.com/reknit/reknit/services/reknit/connect"
	"github.com/reknit/reknit/services/reknit/tell"
	"github.com/reknit/reknit/shared/bus"
)

// answer is what a command found.
type answer interface {
	tell(w io.Writer) // for people
	wrong() []string  // what is not well
}

// show makes a command that shows what ask finds: a table for people, JSON for programs.
func show[A answer](
	command *cobra.Command, ask func(ctx context.Context, b *bus.Bus, names *overlay.Names, nodes []string) (A, error),
) *cobra.Command {
	var live connect.Flags
	var asJSON bool
	command.RunE = func(c *cobra.Command, given []string) error {
		b, err := live.Open(c.Context())
		if err != nil {
			return err
		}
		defer b.Close()
		names, err := connect.Names(c.Context(), b)
		if err != nil {
			return err
		}
		nodes, err := names.Nodes(given)
		if err != nil {
			return tell.UsageError{Err: err}
		}
		found, err := ask(c.Context(), b, names, nodes)
		switch {
		case err != nil:
			return err
		case asJSON:
			err = tell.Document(c.OutOrStdout(), found)
		default:
			found.tell(tell.Showing(c.OutOrStdout(), names.Shown))
		}
		if problems := found.wrong(); err == nil && len(problems) > 0 {
			err = tell.NotWell{Problems: []string{names.Shown(strings.Join(problems, "; "))}}
		}
		return err
	}
	live.Add(command.Flags())
	command.Flags().BoolVar(&asJSON, "json", false, "print the answer as JSON")
	return tell.Command(command)
}
