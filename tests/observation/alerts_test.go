package observation

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var four = []string{"monitor", "negotiator", "planner", "restorer"}

func TestSomebodyIsPagedWhereNobodyActs(t *testing.T) {
	for name, test := range map[string]struct {
		copies map[string][]string // of a service: what each tells, every 15 s; the others act
		paged  []string            // for which services
	}{
		"all act":                            {nil, nil},
		"no service is scraped":              {map[string][]string{"monitor": {}, "negotiator": {}, "planner": {}, "restorer": {}}, four},
		"one stands by":                      {map[string][]string{"planner": {"0x90"}}, []string{"planner"}},
		"one stands by beside one that acts": {map[string][]string{"planner": {"0x90", "1x90"}}, nil},
		"the only series of one goes stale":  {map[string][]string{"restorer": {"1x9 stale"}}, []string{"restorer"}},
		"one was never scraped":              {map[string][]string{"monitor": {}}, []string{"monitor"}},
	} {
		t.Run(name, func(t *testing.T) {
			series := ""
			for _, service := range four {
				copies, told := test.copies[service]
				if !told {
					copies = []string{"1x90"}
				}
				for i, values := range copies {
					series += fmt.Sprintf("      - {series: 'reknit_service_acting{service=\"%s\", instance=\"%d\"}', values: '%s'}\n", service, i, values)
				}
			}
			expectPages(t, series, "ReknitNobodyActs", test.paged)
		})
	}
}

// named are series of which Prometheus makes the names as the exporter of OpenTelemetry does: with what is counted, and its unit.
var (
	named   = regexp.MustCompile(`\breknit_[a-z_]+`)
	made    = regexp.MustCompile(`"(reknit\.[a-z.]+)"`)
	endings = []string{"", "_total", "_seconds", "_seconds_count", "_bytes_total", "_per_second"}
)

// An alert of which nobody makes the series never fires, and Prometheus calls it well.
func TestEachAlertIsOfASeriesThatTheServicesMake(t *testing.T) {
	series := map[string]bool{}
	for _, folder := range []string{"../../services", "../../shared"} {
		err := filepath.WalkDir(folder, func(path string, _ os.DirEntry, err error) error {
			if err != nil || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return err
			}
			text, err := os.ReadFile(path)
			for _, match := range made.FindAllStringSubmatch(string(text), -1) {
				for _, ending := range endings {
					series[strings.ReplaceAll(match[1], ".", "_")+ending] = true
				}
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	alerts := 0
	for alert, condition := range (&server{T: t}).conditions() {
		alerts++
		names := named.FindAllString(condition, -1)
		for _, name := range names {
			if !series[name] {
				t.Errorf("%s is of %s, which no service makes", alert, name)
			}
		}
		if len(names) == 0 {
			t.Errorf("%s is of no series of ours: %s", alert, condition)
		}
	}
	if alerts == 0 {
		t.Error("no alert")
	}
}

// expectPages has promtool judge for which services an alert fires ten minutes after its series began.
func expectPages(t *testing.T, series, alert string, expected []string) {
	t.Helper()
	promtool, err := exec.LookPath("promtool")
	if err != nil {
		t.Skip("no promtool: make test-observation installs Debian's prometheus, which has it")
	}
	rules, err := filepath.Abs(configured + "alerts.yml")
	if err != nil {
		t.Fatal(err)
	}
	fired := "[]\n"
	if len(expected) > 0 {
		fired = "\n"
	}
	for _, service := range slices.Sorted(slices.Values(expected)) {
		fired += fmt.Sprintf("          - exp_labels: {severity: page, service: %s}\n"+
			"            exp_annotations: {summary: No copy of the %s acts, action: %q}\n", service, service,
			"Look at the logs of its copies. Training goes on as it is; changes wait.")
	}
	text := fmt.Sprintf("rule_files: [%s]\nevaluation_interval: 15s\ntests:\n  - interval: 15s\n    input_series:\n%s"+
		"    alert_rule_test:\n      - eval_time: 10m\n        alertname: %s\n        exp_alerts: %s", rules, series, alert, fired)
	file := filepath.Join(t.TempDir(), "test.yml")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if said, err := exec.Command(promtool, "test", "rules", file).CombinedOutput(); err != nil {
		t.Errorf("%v: %s\n%s", err, said, text)
	}
}
