package provision

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/reknit/reknit/services/reknit/tell"
)

const pushTimeout = 30 * time.Second

// Command is reknit provision.
func Command() *cobra.Command {
	provision := tell.Command(&cobra.Command{
		Use: "provision", Short: "make keys, permissions, certificates and the admission policy of a secured installation",
		RunE: func(c *cobra.Command, _ []string) error { return c.Help() },
	})
	provision.AddCommand(security(), admission())
	return provision
}

func security() *cobra.Command {
	var o Options
	var push string
	command := tell.Command(&cobra.Command{
		Use: "security", Short: "make the keys, certificates and permissions, and a kit for each",
		Long: `Makes the keys, certificates and permissions of an installation, and a kit for each service and each node
that is named. Run again with the same --dir it adds to what is there, and renews what it writes.`,
		RunE: func(c *cobra.Command, _ []string) error {
			if err := o.check(); err != nil {
				return tell.UsageError{Err: err}
			}
			return o.run(c.Context(), push, c.OutOrStdout())
		},
	})
	flags := command.Flags()
	flags.StringVar(&o.Dir, "dir", "", "folder of all keys and kits; keep it secret")
	flags.StringVar(&o.Cluster, "cluster", "", "id of the cluster (default: as before, or \"default\")")
	flags.StringVar(&o.Institution, "institution", "", "who the nodes belong to")
	flags.IntVar(&o.Port, "port", 0, "port of each NATS server (default: as before, or 4222)")
	flags.StringArrayVar(&o.Servers, "server", nil,
		"name by which one of three NATS servers is reached; again for each (default: as before, or one server at --host)")
	flags.StringVar(&o.Leaf, "leaf", "", "name by which the NATS server of a site is reached, where the nodes of this run connect")
	flags.StringVar(&push, "push", "", "URL of a running NATS server, which is to learn at once who was revoked")
	flags.StringArrayVar(&o.Nodes, "node", nil, "name of a node that gets a kit; again for each")
	flags.StringArrayVar(&o.Hosts, "host", nil,
		"name or address by which NATS is reached too; again for each (default: as before, or this machine's)")
	flags.StringArrayVar(&o.Revoke, "revoke", nil,
		"name of a service or a node, with --institution where several have one of that name, or a public key; again for each")
	flags.StringArrayVar(&o.Remove, "remove", nil, "name of an institution that takes part no more, nor do its nodes; again for each")
	return command
}

func (o Options) run(ctx context.Context, push string, out io.Writer) error {
	err := Security(o)
	if sites := (siteFaults{}); err != nil && !errors.As(err, &sites) {
		return err
	}
	fmt.Fprintf(out, "NATS servers run in %s/%s, with the nats.conf there; the kits are in %s/%s and %s/%s\n", o.Dir, serverFolder, o.Dir,
		servicesFolder, o.Dir, institutionsFolder)
	if len(o.Nodes) > 0 {
		fmt.Fprintf(out, "reknit provision admission --dir %s has all join that have a kit\n", o.Dir)
	}
	if push == "" {
		return err
	}
	fmt.Fprintf(out, "tells NATS at %s who was revoked; waits for an answer for %v at most\n", push, pushTimeout)
	ctx, cancel := context.WithTimeout(ctx, pushTimeout)
	defer cancel()
	return errors.Join(err, Push(ctx, o.Dir, push))
}
