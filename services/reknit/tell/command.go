package tell

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"
)

// UsageError says that the command line or a file is wrong, not that there is no answer.
type UsageError struct{ Err error }

func (e UsageError) Error() string { return e.Err.Error() }

// Unwrap returns what is wrong.
func (e UsageError) Unwrap() error { return e.Err }

// NotWell says what is not well of a cluster or an installation.
type NotWell struct{ Problems []string }

func (n NotWell) Error() string { return Line("not well: " + strings.Join(n.Problems, "; ")) }

// Command completes a command: whatever is wrong with its line is a UsageError, and is told by whoever ends the process. Its output is
// printable. Without an Args of its own it takes flags only. A shell offers files where its Use says FILE.
func Command(c *cobra.Command) *cobra.Command {
	c.SilenceErrors, c.SilenceUsage = true, true
	c.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return UsageError{err} })
	if c.Args == nil {
		c.Args = flagsOnly
	}
	if c.ValidArgs == nil && !strings.Contains(c.Use, "FILE") {
		c.ValidArgsFunction = cobra.NoFileCompletions
	}
	arguments := c.Args
	c.Args = func(c *cobra.Command, given []string) error {
		c.SetOut(Printable(c.OutOrStdout()))
		c.SetErr(Printable(c.ErrOrStderr()))
		if err := arguments(c, given); err != nil {
			return UsageError{err}
		}
		return nil
	}
	return c
}

// Yes has a command that asks nothing take --yes, as those do that ask: whoever writes a script gives it to each.
func Yes(c *cobra.Command) {
	c.Flags().Bool("yes", false, "changes nothing, for this command never asks")
}

func flagsOnly(_ *cobra.Command, given []string) error {
	if len(given) > 0 {
		return fmt.Errorf("expected flags only, got %q", given[0])
	}
	return nil
}

// Document writes a value as JSON for programs.
func Document(w io.Writer, value any) error {
	encoder := json.NewEncoder(w)
	encoder.SetIndent("", "  ")
	return encoder.Encode(value)
}
