package inventory

import (
	"context"
	"io"

	"github.com/spf13/cobra"

	"github.com/reknit/reknit/services/reknit/connect"
	"github.com/reknit/reknit/services/reknit/tell"
	"github.com/reknit/reknit/shared/bus"
)

// answer is what a command found.
type answer interface {
	tell(w io.Writer) // for people
	wrong() error     // what is not well; nil where all is
}

// show makes a command that shows what ask finds: a table for people, JSON for programs.
func show[A answer](command *cobra.Command, ask func(ctx context.Context, b *bus.Bus, given []string) (A, error)) *cobra.Command {
	var live connect.Flags
	var asJSON bool
	command.RunE = func(c *cobra.Command, given []string) error {
		b, err := live.Open(c.Context())
		if err != nil {
			return err
		}
		defer b.Close()
		found, err := ask(c.Context(), b, given)
		switch {
		case err != nil:
			return err
		case asJSON:
			err = tell.Document(c.OutOrStdout(), found)
		default:
			found.tell(c.OutOrStdout())
		}
		if err == nil {
			err = found.wrong()
		}
		return err
	}
	live.Add(command.Flags())
	command.Flags().BoolVar(&asJSON, "json", false, "print the answer as JSON")
	return tell.Command(command)
}
