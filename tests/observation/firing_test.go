package observation

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// scene is series of cluster c, a value every 15 s as promtool writes them, and when their alert is looked at.
type scene struct {
	fires string // at which moment the alert is to be firing; empty: at none
	quiet string // at which it is not; empty: it fires from the beginning
	holds []string
}

// Each alert fires for the least that it is of, once its time is over, and not for what is well.
var scenes = map[string][]scene{
	"ReknitHolds": {{"1m", "45s", of("cluster_holds", "1x240")}, {"", "20m", of("cluster_holds", "0x240")},
		{"", "20m", append(of("cluster_holds", "1x240"), of("cluster_log_older", "1x240")...)},
		{"", "20m", append(of("cluster_holds", "1x240"), of("training_step_held", "1x240")...)}},
	"ReknitLogOlder":     {{"0s", "", of("cluster_log_older", "1x240")}, {"", "20m", of("cluster_log_older", "0x240")}},
	"ReknitStoreShort":   {{"5m", "4m", filled("0x240", "0.81x240")}, {"", "20m", filled("0.8x240", "0.8x240")}},
	"ReknitLayersAlone":  {{"15m", "14m", of("layers_alone", "1x240")}, {"", "20m", of("layers_alone", "0x240")}},
	"ReknitCopiesDiffer": {{"10m", "0s", of("units_differing", "0 1 0x240")}, {"", "20m", of("units_differing", "1 0x240")}},
	"ReknitSnapshotsLate": {{"5m", "4m", of("snapshot_late", "1x240")}, {"", "20m", of("snapshot_late", "0x240")},
		{"", "20m", append(of("snapshot_late", "1x240"), of("training_diverged", "1x240")...)}},
	"ReknitStepDelayed":        {{"1m", "45s", of("training_delayed", "1x240")}, {"", "20m", of("training_delayed", "0x240")}},
	"ReknitStepHeld":           {{"0s", "", of("training_step_held", "1x240")}, {"", "20m", of("training_step_held", "0x240")}},
	"ReknitLossNotFinite":      {{"0s", "", of("training_diverged", "1x240")}, {"", "20m", of("training_diverged", "0x240")}},
	"ReknitServiceStandsStill": {{"1m", "45s", copies("standing_still", "0x240", "1x240")}, {"", "20m", copies("standing_still", "0x240")}},
	"ReknitServiceStuck":       {{"0s", "", copies("stuck", "0x240", "1x240")}, {"", "20m", copies("stuck", "0x240")}},
	"ReknitServiceBehind":      {{"2m", "1m", copies("behind", "0x240", "1001x240")}, {"", "20m", copies("behind", "1000x240")}},
	"ReknitNobodyActs":         {{"1m", "45s", copies("acting", "0x240", "0x240")}},
	"ReknitMessagesRefused":    {{"5m", "1m", refused("0x4 1x240")}, {"", "20m", refused("7x240")}},
	"ReknitChangesWithoutEnd":  {{"20m", "9m", aborted("0+1x240")}, {"", "30m", aborted("0x40 9x200")}},
	"ReknitNodesFailAgain": {
		{"15m", "45s", delayed("0 1 2 2 3x300")}, {"", "20m", delayed("0 1 2x240")}, {"", "80m", delayed("0 3x400")},
	},
	"ReknitNodesMissing": {
		{"5m", "4m", nodes("suspected", "1x240")}, {"5m", "4m", nodes("silent", "1x240")}, {"5m", "4m", nodes("lost", "1x240")},
		{"", "20m", nodes("training", "9x240")}, {"", "20m", nodes("lost", "0x240")},
	},
	"ReknitTrainingStopped": {
		{"5m", "4m", append(nodes("training", "3x240"), of("training_samples_per_second", "0x240")...)},
		{"", "20m", append(nodes("training", "3x240"), of("training_samples_per_second", "0.5x240")...)},
		{"", "20m", append(nodes("training", "0x240"), of("training_samples_per_second", "0x240")...)},
	},
}

func of(series, values string) []string {
	return []string{fmt.Sprintf(`{series: 'reknit_%s{cluster="c"}', values: '%s'}`, series, values)}
}

func nodes(state, values string) []string {
	return []string{fmt.Sprintf(`{series: 'reknit_cluster_nodes{cluster="c", state="%s"}', values: '%s'}`, state, values)}
}

// copies are what the copies of a planner tell; all other services act.
func copies(series string, values ...string) (told []string) {
	for i, one := range values {
		told = append(told, fmt.Sprintf(`{series: 'reknit_service_%s{service="planner", instance="%d"}', values: '%s'}`, series, i, one))
	}
	for _, service := range four {
		if service != "planner" && series == "acting" {
			told = append(told, fmt.Sprintf(`{series: 'reknit_service_acting{service="%s"}', values: '1x240'}`, service))
		}
	}
	return told
}

// filled is what two services tell of a store, of whom one looked later.
func filled(values ...string) (told []string) {
	for i, one := range values {
		told = append(told, fmt.Sprintf(`{series: 'reknit_store_filled{store="REKNIT_EVENTS", service="%s"}', values: '%s'}`, four[i], one))
	}
	return told
}

func refused(values string) []string {
	return []string{fmt.Sprintf(`{series: 'reknit_messages_refused_total{cluster="c", reason="malformed"}', values: '%s'}`, values)}
}

func aborted(values string) []string { return said("negotiation.aborted", values) }

func delayed(values string) []string { return said("membership.join-delayed", values) }

// said is how many events of a kind the negotiator said.
func said(kind, values string) []string {
	return []string{fmt.Sprintf(`{series: 'reknit_events_said_total{cluster="c", kind="%s"}', values: '%s'}`, kind, values)}
}

func TestEachAlertFiresForTheLeastThatItIsOfAndNotForWhatIsWell(t *testing.T) {
	promtool, err := exec.LookPath("promtool")
	if err != nil {
		t.Skip("no promtool: make test-observation installs Debian's prometheus, which has it")
	}
	rules, err := filepath.Abs(configured + "alerts.yml")
	if err != nil {
		t.Fatal(err)
	}
	text := fmt.Sprintf("rule_files: [%s]\nevaluation_interval: 15s\ntests:\n", rules)
	for alert := range (&server{T: t}).conditions() {
		if len(scenes[alert]) == 0 {
			t.Errorf("%s: expected a row of series for which it fires", alert)
		}
		for i, seen := range scenes[alert] {
			text += fmt.Sprintf("  - name: %s, row %d\n    interval: 15s\n    input_series:\n      - %s\n    promql_expr_test:\n", alert, i,
				strings.Join(seen.holds, "\n      - ")) + fires(alert, seen.fires, 1) + fires(alert, seen.quiet, 0)
		}
	}
	file := filepath.Join(t.TempDir(), "test.yml")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if said, err := exec.Command(promtool, "test", "rules", file).CombinedOutput(); err != nil {
		t.Errorf("%v: %s", err, said)
	}
}

// fires expects how many alerts of a name fire at a moment.
func fires(alert, at string, count int) string {
	if at == "" {
		return ""
	}
	return fmt.Sprintf("      - expr: count(ALERTS{alertname=\"%s\", alertstate=\"firing\"}) or vector(0)\n        eval_time: %s\n"+
		"        exp_samples: [{labels: '{}', value: %d}]\n", alert, at, count)
}
