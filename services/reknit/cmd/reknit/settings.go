package main

import (
	"fmt"
	"io"
	"maps"
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

// configs are those of all commands, by name: one environment may hold the variables of several.
var configs = map[string]any{
	"agent": agentd.Config{}, "monitor": monitor.Config{}, "negotiator": negotiator.Config{}, "planner": planner.Config{},
	"restorer": restorer.Config{}, "trainer": trainer.Config{},
}

// others are variables of reknit.py, of deploy/ and of the tests.
var others = []string{
	"REKNIT_AGENT", "REKNIT_AGENT_IS_PARENT", "REKNIT_UNCHANGED", "REKNIT_NODE", "REKNIT_ENV_FILE", "REKNIT_NATS_PORT",
	"REKNIT_PAGE_PORT", "REKNIT_TEXT", "REKNIT_TRAINER_CPUS", "REKNIT_TEST_LOG",
}

// warnOfStrangers names the variables of an environment that nothing here reads: a misspelt policy binds nobody. A
// service names itself what is almost a setting of its own.
func warnOfStrangers(command string, environment []string, output io.Writer) {
	known, meant, itself := slices.Clone(others), map[string]string{}, map[string]string{}
	if config, has := configs[command]; has {
		itself = service.Misspelt(config, environment)
	}
	for _, config := range configs {
		maps.Copy(meant, service.Misspelt(config, environment))
		for _, variable := range service.Variables(config) {
			known = append(known, variable.Name)
		}
	}
	for _, setting := range environment {
		name, _, _ := strings.Cut(setting, "=")
		ofKubernetes := strings.Contains(name, "_SERVICE_") || strings.Contains(name, "_PORT_") // of a service called reknit-…
		if !strings.HasPrefix(name, "REKNIT_") || ofKubernetes || slices.Contains(known, name) || itself[name] != "" {
			continue
		}
		advice := "reknit agent help and reknit monitor help list them"
		if meant[name] != "" {
			advice = "did you mean " + meant[name] + "?"
		}
		fmt.Fprintf(output, "reknit: %s is no setting, and has no effect: %s\n", name, advice)
	}
}
