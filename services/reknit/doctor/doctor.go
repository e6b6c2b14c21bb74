// Package doctor looks at an installation from where a node stands, and says of each thing that is not as it must be what to
// do.
package doctor

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/caarlos0/env/v11"
	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/spf13/cobra"

	"github.com/reknit/reknit/services/monitor/machine/overlay"
	"github.com/reknit/reknit/services/reknit/agentd"
	"github.com/reknit/reknit/services/reknit/connect"
	"github.com/reknit/reknit/services/reknit/tell"
	"github.com/reknit/reknit/shared/bus"
	"github.com/reknit/reknit/shared/service"
)

const help = `Looks at an installation from this machine, with the environment that a node has here: whether NATS lets it in, whether JetStream,
the streams and buckets are as they must be, whether somebody hears all that was said, whether the clocks agree, what it may hear,
which services work, how old the newest complete snapshot is, whether peers and this node reach each other, whether copies of the model differ, and how full disks are. It
says what to do about each finding. It changes nothing; peers are asked to dial this node once. It remembers on this machine how far
the log has come, and says so where that went back.

Exit status: 0 nothing is wrong, though there may be warnings; 3 something is; 2 as everywhere.`

// Finding is what was found of one thing.
type Finding struct {
	Check string `json:"check"`
	State string `json:"state"` // one of the constants
	Says  string `json:"says"`
	Do    string `json:"do,omitempty"`
}

// inTheWay is said of what cannot be looked at before something else is mended.
const inTheWay = "something above is in the way"

// The states of a finding.
const (
	fine    = "ok"
	warning = "warning" // it works, and may not for long
	wrong   = "wrong"
	unseen  = "not seen" // something else is in the way
)

// doctor collects findings.
type doctor struct {
	live     connect.Flags
	node     agentd.Config
	kit      bus.Identity // zero where the installation is not secured
	unfit    bool         // nobody is let in with it
	conn     *nats.Conn
	api      jetstream.JetStream // that is asked
	js       jetstream.JetStream // the same, once it has answered
	bus      *bus.Bus
	names    *overlay.Names  // of members of the plan, once they were read
	lives    map[string]life // of members of the plan that were asked
	findings []Finding
	store    string // folder of NATS' store; empty: that of reknit up, where it is here
}

// Command is `reknit doctor`.
func Command() *cobra.Command {
	d := doctor{names: overlay.NewNames(), lives: map[string]life{}}
	var asJSON bool
	command := tell.Command(&cobra.Command{
		Use: "doctor", Short: "look for what is wrong with an installation, from where a node stands", Long: help,
		RunE: func(c *cobra.Command, _ []string) error {
			if err := service.Read(&d.node, env.ToMap(os.Environ())); err != nil {
				return tell.UsageError{Err: err}
			}
			if err := d.openKit(); err != nil {
				return tell.UsageError{Err: err}
			}
			d.examine(c.Context())
			if err := d.print(c.OutOrStdout(), asJSON); err != nil {
				return err
			}
			return d.verdict()
		},
	})
	d.live.Add(command.Flags())
	command.Flags().StringVar(&d.store, "store", "", "directory of NATS' store, where that is on this machine, to look at its disk (\"reknit-data\" if that is here)")
	command.Flags().BoolVar(&asJSON, "json", false, "print the findings as JSON")
	return command
}

// examine makes every check. One that needs what is not there says so.
func (d *doctor) examine(ctx context.Context) {
	defer d.close()
	for _, check := range []struct {
		name  string
		needs func() bool // nil: nothing
		make  func(ctx context.Context) []Finding
	}{
		{"kit", nil, d.keys},
		{"NATS", nil, d.nats},
		{"JetStream", d.connected, d.jetStream},
		{"cluster", d.stored, d.cluster},
		{"streams", d.joined, d.streams},
		{"log", d.joined, d.log},
		{"subjects", d.joined, d.subjects},
		{"refused", d.joined, d.refused},
		{"clock", d.joined, d.clock},
		{"permissions", d.joined, d.permissions},
		{"services", d.joined, d.services},
		{"training", d.joined, d.training},
		{"snapshots", d.joined, unlessResting(d, d.snapshots)},
		{"replicas", d.joined, d.replicas},
		{"peers", d.joined, unlessResting(d, d.peers)},
		{"own address", d.joined, unlessResting(d, d.address)},
		{"disk", nil, d.disk},
	} {
		if check.needs != nil && !check.needs() {
			d.findings = append(d.findings, Finding{Check: check.name, State: unseen, Says: inTheWay})
			continue
		}
		for _, finding := range check.make(ctx) {
			finding.Check = check.name
			d.findings = append(d.findings, finding)
		}
	}
}

// unlessResting makes a check that needs other nodes, where training goes on: of a job that is complete, stopped or begun anew nobody needs
// to be there.
func unlessResting(d *doctor, check func(context.Context) []Finding) func(context.Context) []Finding {
	return func(ctx context.Context) []Finding {
		rest, err := connect.Resting(ctx, d.bus)
		if says := rest.Brief(); err == nil && says != "" {
			return found(fine, "", "nobody has to be there: %s", says)
		}
		return check(ctx)
	}
}

func (d *doctor) connected() bool { return d.conn != nil }
func (d *doctor) stored() bool    { return d.js != nil }
func (d *doctor) joined() bool    { return d.bus != nil }

func (d *doctor) close() {
	if d.bus != nil {
		d.bus.Close()
	}
	if d.conn != nil {
		d.conn.Close()
	}
}

func (d *doctor) print(w io.Writer, asJSON bool) error {
	if asJSON {
		return tell.Document(w, d.findings)
	}
	w = tell.Showing(w, d.names.Shown)
	table := tell.Table(w)
	var hidden []string
	for _, finding := range d.findings {
		if finding.Says == inTheWay {
			hidden = append(hidden, finding.Check)
			continue
		}
		tell.Row(table, finding.Says, 90, finding.Check, finding.State)
		if finding.Do != "" {
			tell.Row(table, "-> "+finding.Do, 90, "", "")
		}
	}
	if len(hidden) > 0 {
		tell.Row(table, inTheWay+" of: "+strings.Join(hidden, ", "), 90, "the rest", unseen)
	}
	return table.Flush()
}

func (d *doctor) verdict() error {
	var problems []string
	for _, finding := range d.findings {
		if finding.State == wrong {
			problems = append(problems, finding.Check+": "+d.names.Shown(finding.Says))
		}
	}
	if len(problems) == 0 {
		return nil
	}
	return tell.NotWell{Problems: problems}
}

// found is a list of one. The only thing to do is to start the servers that are away, if a server says that too few of
// the others are there.
func found(state, do, format string, arguments ...any) []Finding {
	for _, argument := range arguments {
		if err, is := argument.(error); is && state == wrong && lacksMajority(err) {
			do = "start the servers that are away: two of three are needed, and must reach each other"
		}
	}
	return []Finding{{State: state, Do: do, Says: fmt.Sprintf(format, arguments...)}}
}

func lacksMajority(err error) bool {
	var answer *jetstream.APIError
	return errors.As(err, &answer) && answer.ErrorCode == jetstream.ErrorCode(server.JSClusterNotAvailErr)
}
