package plan

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/reknit/reknit/services/reknit/tell"
)

// healthy is the cluster of failure.yaml, of which no node fails, with so many replicas asked for.
func healthy(t *testing.T, replicas string) (file string) {
	t.Helper()
	text, err := os.ReadFile("testdata/failure.yaml")
	if err != nil {
		t.Fatal(err)
	}
	changed := strings.NewReplacer("failed: [n5]", "failed: []", "minReplicas: 1", "minReplicas: "+replicas).Replace(string(text))
	file = filepath.Join(t.TempDir(), "healthy.yaml")
	if err := os.WriteFile(file, []byte(changed), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

func TestAPlanForAHealthyClusterIsComparedWithTheOneInForce(t *testing.T) {
	for _, cluster := range []struct {
		replicas    string
		says, never []string
	}{
		{"1", []string{"would be planned so, by repipeline", "in force", "shorter for"}, []string{"kept as it is"}},
		{"2", []string{"would be kept as it is", "of the plan in force"}, []string{"by reroute", "no lower bound", "in force  "}},
	} {
		output := printed(t, "--file", healthy(t, cluster.replicas))
		for _, says := range cluster.says {
			if !strings.Contains(output, says) {
				t.Errorf("%s replicas: expected %q in\n%s", cluster.replicas, says, output)
			}
		}
		for _, word := range cluster.never {
			if strings.Contains(output, word) {
				t.Errorf("%s replicas: expected no %q in\n%s", cluster.replicas, word, output)
			}
		}
	}
}

// Passes take 0.6 of the step in force, and all else that a plan of several nodes takes as well the rest.
func TestWhatAStepTakesBesidePassesIsOfBothPlansThatAreCompared(t *testing.T) {
	q, err := load(healthy(t, "1"))
	if err != nil {
		t.Fatal(err)
	}
	model := q.Settings.Situation(q.Request).CurrentSeconds()
	q.Request.CurrentStepSeconds, q.Request.CurrentComputeRatio = model, 0.6
	answer, err := q.answer()
	if err != nil {
		t.Fatal(err)
	}
	step, bound := answer.Plan.Predicted.StepSeconds, answer.Plan.Predicted.StepSecondsLowerBound
	if bound <= answer.Plan.Predicted.OverheadSeconds {
		t.Errorf("no step is predicted to take less than %v s: %+v", bound, answer.Plan.Predicted)
	}
	expectSays(t, told(t, q, answer), fmt.Sprintf("in force      %s", tell.Seconds(model)), fmt.Sprintf("%.1f%% shorter", 100*(1-step/model)))
}
