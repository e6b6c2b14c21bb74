// Package version tells of which build a program is, and of which the services of a cluster are.
package version

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime/debug"

	"github.com/spf13/cobra"

	"github.com/reknit/reknit/events"
	"github.com/reknit/reknit/services/reknit/connect"
	"github.com/reknit/reknit/services/reknit/inventory"
	"github.com/reknit/reknit/services/reknit/tell"
	"github.com/reknit/reknit/shared/service"
)

const help = `Tells of which build this program is: release, commit, the Go that compiled it, the NATS server and client library in it, and the
version of the events that it says and hears. With --services it also asks the services of a cluster what they are.`

// Build is what a program was built from.
type Build struct {
	Version  string              `json:"version"`          // the release and the commit, as in 0.1.0+b356a57c1f02
	Commit   string              `json:"commit,omitempty"` // empty where it was built outside of a clone, or with -buildvcs=false
	Modified bool                `json:"modified"`         // beside the commit
	Go       string              `json:"go"`
	Server   string              `json:"natsServer"`
	Client   string              `json:"natsClient"`
	Contract string              `json:"contract"` // of the events
	Events   int                 `json:"events"`   // how many kinds of them it knows
	Services []inventory.Service `json:"services,omitempty"`
}

// Command is `reknit version`.
func Command() *cobra.Command {
	var live connect.Flags
	var asJSON, services bool
	command := tell.Command(&cobra.Command{
		Use: "version", Short: "tell of which build this program is, and of which a cluster's services are", Long: help,
		RunE: func(c *cobra.Command, _ []string) error {
			build, err := own()
			if err == nil && services {
				build.Services, err = ask(c.Context(), live)
			}
			switch {
			case err != nil:
				return err
			case asJSON:
				return tell.Document(c.OutOrStdout(), build)
			}
			return build.tell(c.OutOrStdout())
		},
	})
	live.Add(command.Flags())
	command.Flags().BoolVar(&asJSON, "json", false, "print the answer as JSON")
	command.Flags().BoolVar(&services, "services", false, "ask the services of a cluster, too")
	return command
}

// own reads what the linker wrote into this program.
func own() (Build, error) {
	info, known := debug.ReadBuildInfo()
	if !known {
		return Build{}, errors.New("this program was built without modules, and does not know what it is")
	}
	build := Build{Version: service.Version(), Go: info.GoVersion, Contract: events.Version, Events: len(events.Catalogue)}
	for _, setting := range info.Settings {
		switch setting.Key {
		case "vcs.revision":
			build.Commit = setting.Value
		case "vcs.modified":
			build.Modified = setting.Value == "true"
		}
	}
	for _, module := range info.Deps {
		switch module.Path {
		case "github.com/nats-io/nats-server/v2":
			build.Server = module.Version
		case "github.com/nats-io/nats.go":
			build.Client = module.Version
		}
	}
	return build, nil
}

func ask(ctx context.Context, live connect.Flags) ([]inventory.Service, error) {
	b, err := live.Open(ctx)
	if err != nil {
		return nil, err
	}
	defer b.Close()
	return inventory.Services(ctx, b)
}

func (b Build) tell(w io.Writer) error {
	table := tell.Table(w)
	commit := b.Commit
	switch {
	case commit == "":
		commit = "not known: built outside of a clone, or with -buildvcs=false"
	case b.Modified:
		commit += ", and changes that are in no commit"
	}
	fmt.Fprintf(table, "reknit\t%s\ncommit\t%s\ngo\t%s\nNATS server\t%s\nNATS client\t%s\nevents\t%s, of %d kinds\n",
		b.Version, commit, b.Go, b.Server, b.Client, b.Contract, b.Events)
	for _, service := range b.Services {
		fmt.Fprintf(table, "%s\t%s\n", service.Service, service.Build())
	}
	return table.Flush()
}
