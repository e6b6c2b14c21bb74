package audit

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/nats-io/nkeys"
	"github.com/spf13/cobra"

	"github.com/reknit/reknit/services/reknit/connect"
	"github.com/reknit/reknit/services/reknit/tell"
	"github.com/reknit/reknit/shared/bus"
)

const recordHelp = `Records who did what with consequences, from the cluster's log, behind what FILE holds: who asked to join, leave or change a link,
who consented or objected, what was refused, given up, committed, and which instances of the services act. Each record names the
digest of the one before it and is signed with the key of the kit (REKNIT_NATS_KIT); in it stands what its speaker signed. With --follow
it goes on until it is interrupted, and begins again where it ended. The log holds three days: run it more often than that.
Its last line is NUMBER:DIGEST of the last record, for verify --expect.`

const verifyHelp = `Verifies audit logs, offline, in the order in which they are given: that no record was changed, removed, or moved, that each is
signed by who recorded it, and with --kit that this is somebody of the installation and that each event is signed by its speaker.
The error names the first record that does not fit. It prints the last record; --expect with that finds out later whether the end was cut.`

const mostBytes = 256 << 20

// Command is `reknit audit`.
func Command() *cobra.Command {
	command := tell.Command(&cobra.Command{
		Use: "audit", Short: "record who did what, and verify that nobody changed the record",
		RunE: func(c *cobra.Command, _ []string) error { return c.Help() },
	})
	command.AddCommand(recordCommand(), verifyCommand())
	return command
}

func recordCommand() *cobra.Command {
	var live connect.Flags
	var goesOn bool
	var policies []string
	var most int64
	command := tell.Command(&cobra.Command{
		Use: "record FILE", Short: "record what the log tells behind what FILE holds", Long: recordHelp, Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, given []string) (err error) {
			key, err := keyOf(os.Getenv("REKNIT_NATS_KIT"))
			if err != nil {
				return tell.UsageError{Err: err}
			}
			f, err := openFile(given[0], most, key)
			if err != nil {
				return err
			}
			defer f.close()
			b, err := live.Open(c.Context())
			if err != nil {
				return err
			}
			defer b.Close()
			r := recorder{b, f, policies}
			if goesOn {
				err = r.follow(c.Context())
			} else {
				err = r.catchUp(c.Context())
			}
			tellHead(c.OutOrStdout(), given[0], Head{f.last.Number, f.digest})
			return err
		},
	})
	live.Add(command.Flags())
	command.Flags().BoolVar(&goesOn, "follow", false, "go on until it is interrupted")
	command.Flags().StringArrayVar(&policies, "policy", nil,
		"file of a policy (admission.json, accounts.conf), recorded whenever it is another; may be repeated")
	command.Flags().Int64Var(&most, "most", mostBytes,
		"bytes of FILE at which it becomes FILE.NUMBER, of its last record, and another one begins")
	return command
}

func verifyCommand() *cobra.Command {
	var kit, expect string
	command := tell.Command(&cobra.Command{
		Use: "verify FILE...", Short: "name the first record that somebody changed, removed or moved", Long: verifyHelp,
		Args: cobra.MinimumNArgs(1),
		RunE: func(c *cobra.Command, files []string) error { return verify(c.OutOrStdout(), files, kit, expect) },
	})
	command.Flags().StringVar(&kit, "kit", "", "folder of any kit of the installation, for the keys of its services and users (identity.json)")
	command.Flags().StringVar(&expect, "expect", "", "what an earlier verification or recording printed: NUMBER:DIGEST")
	return command
}

// tellHead says of what a file holds where it ends, which nobody can tell from the file later. The last line is for programs.
func tellHead(w io.Writer, file string, head Head) {
	if head.Number == 0 {
		fmt.Fprintf(w, "%s has no records yet: the log holds nothing that is recorded\n", file)
		return
	}
	fmt.Fprintf(w, "%s is recorded up to record %d. Note the line below, its number and digest, where nobody can write who can write\n"+
		"the file: reknit audit verify --expect tells by it whether the end was cut off.\n", file, head.Number)
	fmt.Fprintln(w, head)
}

// keyOf returns the key of a kit, nil where there is none.
func keyOf(kit string) (nkeys.KeyPair, error) {
	if kit == "" {
		return nil, nil
	}
	text, err := os.ReadFile(filepath.Join(kit, bus.CredentialsFile))
	if err != nil {
		return nil, fmt.Errorf("REKNIT_NATS_KIT: %w", err)
	}
	return nkeys.ParseDecoratedUserNKey(text)
}

func verify(w io.Writer, files []string, kit, expect string) (err error) {
	v := &Verifier{}
	if expect != "" {
		if v.Expect, err = ReadHead(expect); err != nil {
			return tell.UsageError{Err: fmt.Errorf("--expect: %w", err)}
		}
	}
	if kit != "" {
		identity, err := bus.ReadIdentity(kit)
		if err != nil {
			return tell.UsageError{Err: fmt.Errorf("--kit: %w", err)}
		}
		v.Kit = &identity
	}
	for _, name := range files {
		file, err := os.Open(name)
		if err != nil {
			return tell.UsageError{Err: err}
		}
		err = errors.Join(v.Read(file), file.Close())
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	if err := v.End(); err != nil {
		return err
	}
	v.tell(w)
	return nil
}

func (v *Verifier) tell(w io.Writer) {
	if v.first == 0 {
		fmt.Fprintln(w, "there are no records")
		return
	}
	signed := "each is signed, by whom --kit would tell"
	switch {
	case v.Kit != nil:
		signed = "each is signed by somebody of the installation, and what it records by its speaker"
	case v.unsigned > 0:
		signed = fmt.Sprintf("%d are not signed: whoever could write the file could make all of them anew", v.unsigned)
	}
	fmt.Fprintf(w, "records %d to %d follow each other; %s\n", v.first, v.head.Number, signed)
	if v.first > 1 {
		fmt.Fprintf(w, "records 1 to %d are not here\n", v.first-1)
	}
	fmt.Fprintf(w, "the last one, for --expect:\n%v\n", v.head)
}
