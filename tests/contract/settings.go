package contract

import (
	"fmt"
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

// programs are those that read their settings from the environment, each into a struct whose tags tell all of it.
var programs = []struct {
	name   string
	config any
}{
	{"monitor", monitor.Config{}}, {"negotiator", negotiator.Config{}}, {"planner", planner.Config{}}, {"restorer", restorer.Config{}},
	{"agent", agentd.Config{}}, {"trainer", trainer.Config{}},
}

// setting is a variable as one or several programs read it.
type setting struct {
	service.Variable
	readBy []string
}

// settings lists every variable once, in the order of the programs; where two programs tell it differently, twice.
func settings() (all []setting) {
	for _, program := range programs {
		for _, variable := range service.Variables(program.config) {
			at := slices.IndexFunc(all, func(known setting) bool { return known.Variable == variable })
			if at < 0 {
				at = len(all)
				all = append(all, setting{Variable: variable})
			}
			all[at].readBy = append(all[at].readBy, program.name)
		}
	}
	return all
}

// settingsTable is the generated part of deploy/settings.md.
func settingsTable() string {
	var out strings.Builder
	out.WriteString("\n| variable | read by | default | unit | why |\n|---|---|---|---|---|\n")
	for _, s := range settings() {
		readBy, byDefault := strings.Join(s.readBy, ", "), "–"
		switch len(s.readBy) {
		case len(programs):
			readBy = "all"
		case len(programs) - 1:
			readBy = "all but the " + missingFrom(s.readBy)
		}
		if s.Default != "" {
			byDefault = "`" + s.Default + "`"
		}
		fmt.Fprintf(&out, "| `%s` | %s | %s | %s | %s |\n", s.Name, readBy, byDefault, cell(s.Unit), cell(s.Reason))
	}
	return out.String() + "\n"
}

// missingFrom is the one program that does not read a variable.
func missingFrom(readBy []string) string {
	for _, program := range programs {
		if !slices.Contains(readBy, program.name) {
			return program.name
		}
	}
	return ""
}

// cell is text as it may stand in a table.
func cell(text string) string {
	return strings.NewReplacer("|", `\|`, "<", "&lt;").Replace(text)
}
