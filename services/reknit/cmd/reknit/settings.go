package main

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/reknit/reknit/services/monitor"
	"github.com/reknit/reknit/services/negotiator"
	"github.com/reknit/reknit/services/planner"
	"github.com/reknit/reknit/services/reknit/agentd"
	"github.com/reknit/reknit/services/restorer"
	"github.com/reknit/reknit/services/trainer"
	"github.com/reknit/reknit/shared/service"
)

// configs are those of all commands: one environment may hold the variables of several.
var configs = []any{
	agentd.Config{}, monitor.Config{}, negotiator.Config{}, planner.Config{}, restorer.Config{}, trainer.Config{},
}

// others are variables of reknit.py, of deploy/ and of the tests.
var others = []string{
	"REKNIT_AGENT", "REKNIT_AGENT_IS_PARENT", "REKNIT_UNCHANGED", "REKNIT_NODE", "REKNIT_ENV_FILE", "REKNIT_NATS_PORT",
	"REKNIT_PAGE_PORT", "REKNIT_TEXT", "REKNIT_TRAINER_CPUS", "REKNIT_TEST_LOG",
}

// warnOfStrangers names the variables of an environment that nothing here reads: a misspelt policy binds nobody.
func warnOfStrangers(environment []string, output io.Writer) {
	known := slices.Clone(others)
	for _, config := range configs {
		for _, variable := range service.Variables(config) {
			known = append(known, variable.Name)
		}
	}
	for _, setting := range environment {
		name, _, _ := strings.Cut(setting, "=")
		ofKubernetes := strings.Contains(name, "_SERVICE_") || strings.Contains(name, "_PORT_") // of a service called reknit-…
		if strings.HasPrefix(name, "REKNIT_") && !ofKubernetes && !slices.Contains(known, name) {
			fmt.Fprintf(output, "reknit: %s is no setting, and has no effect: reknit agent help and reknit monitor help list them\n", name)
		}
	}
}
