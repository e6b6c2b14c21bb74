package dev

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/reknit/reknit/events"
	"github.com/reknit/reknit/services/reknit/processes"
	"github.com/reknit/reknit/services/reknit/tell"
)

// Options are the flags of `reknit dev`.
type Options struct {
	Trainers            int
	Pipelines           int
	OptimizerPartitions int
	Steps               uint64
	Seed                uint64
	Text                string
	Script              string
	Report              string
	Log                 string
	Dir                 string
	Cluster             string
	Page                string
	Unjudged            bool

	actions   []Action
	temporary bool // Dir was made here
}

// defaultText comes with every Go distribution.
const defaultText = "src/testdata/Isaac.Newton-Opticks.txt"

const devHelp = `Runs NATS, the services and some trainers here, and has a script of things go wrong (the default, or --script). Then it judges
the model: it trains all steps once more, in one process that nothing disturbs, and the digests must be equal. To try other commands
meanwhile, take many --steps and --no-judge; Ctrl-C ends it at any time, and says the model's digest where training was complete.

It tells of each change how long after the script's deed each phase ended, by this machine's clock. reknit history counts from the last
heartbeat of who failed, or from the request, which is later: its times are less. The stall is what the trainer that stood longest
saw by its own clock between two of its steps, less a usual one. It begins with the step before, not with the change.`

// Command is `reknit dev`.
func Command() *cobra.Command {
	var o Options
	command := tell.Command(&cobra.Command{
		Use: "dev", Short: "run NATS, the services and some trainers here, and show how training heals", Long: devHelp,
		RunE: func(c *cobra.Command, _ []string) error {
			if err := o.complete(); err != nil {
				return tell.UsageError{Err: err}
			}
			if terminal := tell.Terminal(c.OutOrStdout()); terminal != nil {
				return Run(c.Context(), o, terminal, true)
			}
			return Run(c.Context(), o, c.OutOrStdout(), false)
		},
	})
	flags := command.Flags()
	flags.IntVar(&o.Trainers, "trainers", 6, "trainer processes to start with, 2 to 64")
	flags.IntVar(&o.Pipelines, "pipelines", 2, "data-parallel pipelines; 0 lets the planner choose")
	flags.IntVar(&o.OptimizerPartitions, "optimizer-partitions", 0, "parts that each layer's optimizer state is cut into "+
		"(ZeRO), of which a pipeline keeps some where there are three or more; 0: whole")
	flags.Uint64Var(&o.Steps, "steps", 330, "training steps")
	flags.BoolVar(&o.Unjudged, "no-judge", false, "end when training does: do not train all steps once more to compare the digests")
	flags.Uint64Var(&o.Seed, "seed", 1, "of the model, the order of the data, and the choices of \"any\" in a script")
	flags.StringVar(&o.Text, "text", "", "text file to train on (default: Newton's Opticks, from the Go distribution)")
	flags.StringVar(&o.Script, "script", "",
		"what happens to the cluster; a file of lines such as \"at 30 kill n2\" (default: the demo)")
	flags.StringVar(&o.Report, "report", "", "write the report to this JSON file")
	flags.StringVar(&o.Log, "log", "", "write every event to this file, a line of JSON each")
	flags.StringVar(&o.Dir, "dir", "", "an empty directory for the processes' logs and the NATS store "+
		"(default: a temporary one, removed after a success)")
	processes.PageFlag(flags, &o.Page)
	flags.StringVar(&o.Cluster, "cluster", "dev", "id of the cluster")
	return command
}

func (o *Options) complete() error {
	switch {
	case o.Trainers < 2 || o.Trainers > 64:
		return fmt.Errorf("--trainers: expected 2 to 64, got %d", o.Trainers)
	case o.Pipelines < 0 || o.Pipelines > o.Trainers:
		return fmt.Errorf("--pipelines: expected 0 to %d, got %d", o.Trainers, o.Pipelines)
	case o.OptimizerPartitions < 0 || o.OptimizerPartitions > events.MostPartitions:
		return fmt.Errorf("--optimizer-partitions: expected 0 to %d, got %d", events.MostPartitions, o.OptimizerPartitions)
	case o.Steps < 1:
		return fmt.Errorf("--steps: expected at least 1, got %d", o.Steps)
	case !events.Token(o.Cluster):
		return fmt.Errorf("--cluster: expected 1 to 64 characters of A-Z a-z 0-9 - _, got %q", o.Cluster)
	}
	if err := o.completeText(); err != nil {
		return fmt.Errorf("--text: %w", err)
	}
	if err := o.readScript(); err != nil {
		return fmt.Errorf("--script: %w", err)
	}
	if o.Report != "" {
		file, err := os.Create(o.Report)
		if err != nil {
			return fmt.Errorf("--report: %w", err)
		}
		file.Close()
	}
	if err := o.makeDir(); err != nil {
		return fmt.Errorf("--dir: %w", err)
	}
	return nil
}

func (o *Options) makeDir() error {
	if o.Dir == "" {
		dir, err := os.MkdirTemp("", "reknit-dev-")
		o.Dir, o.temporary = dir, true
		return err
	}
	if entries, err := os.ReadDir(o.Dir); err == nil && len(entries) > 0 {
		return fmt.Errorf("expected an empty directory, for an old log would be taken for this run's, got %s", o.Dir)
	}
	return os.MkdirAll(o.Dir, 0o755)
}

func (o *Options) completeText() error {
	if o.Text == "" {
		root, err := exec.Command("go", "env", "GOROOT").Output()
		if err != nil {
			return fmt.Errorf("expected a text file, for there is no Go distribution to take the default from: %w", err)
		}
		o.Text = filepath.Join(strings.TrimSpace(string(root)), defaultText)
	}
	config, err := o.trainerConfig("dev")
	if err == nil {
		_, _, err = config.Training()
	}
	return err
}

func (o *Options) readScript() error {
	var reader io.Reader = strings.NewReader(DefaultScript(o.Trainers))
	switch {
	case o.Script == "" && o.Trainers < defaultTrainers:
		return fmt.Errorf("the default script needs --trainers %d or more, got %d; an empty file has nothing go wrong",
			defaultTrainers, o.Trainers)
	case o.Script != "":
		file, err := os.Open(o.Script)
		if err != nil {
			return err
		}
		defer file.Close()
		reader = file
	}
	var err error
	if o.actions, err = ParseScript(reader); err != nil {
		return err
	}
	for _, action := range o.actions {
		if action.AtStep >= o.Steps {
			if o.Script == "" {
				return fmt.Errorf("the default script needs --steps %d or more, got %d; an empty file has nothing go wrong",
					o.actions[len(o.actions)-1].AtStep+1, o.Steps)
			}
			return fmt.Errorf("line %d: expected a step below --steps %d, got %d", action.Line, o.Steps, action.AtStep)
		}
	}
	return nil
}
