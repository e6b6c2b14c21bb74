package tell

import (
	"errors"
	"flag"
	"fmt"
	"io"
)

// UsageError says that the flags or a file are wrong, not that there is no answer.
type UsageError struct{ Err error }

func (e UsageError) Error() string { return e.Err.Error() }

// Unwrap returns what is wrong.
func (e UsageError) Unwrap() error { return e.Err }

// Parse reads the flags of a command that takes nothing else, and has check look at them. It fails with a UsageError,
// or with flag.ErrHelp where help is asked for: then it has printed the help, the flags and the exits.
func Parse(flags *flag.FlagSet, arguments []string, w io.Writer, help, exits string, check func() error) error {
	flags.SetOutput(io.Discard)
	err := flags.Parse(arguments)
	switch {
	case errors.Is(err, flag.ErrHelp):
		fmt.Fprint(w, help)
		flags.SetOutput(w)
		flags.PrintDefaults()
		fmt.Fprint(w, exits)
		return err
	case err == nil && flags.NArg() > 0:
		err = fmt.Errorf("expected flags only, got %q", flags.Arg(0))
	case err == nil:
		err = check()
	}
	if err != nil {
		return UsageError{err}
	}
	return nil
}
