package trainer

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/caarlos0/env/v11"

	"github.com/reknit/reknit/events"
	"github.com/reknit/reknit/shared/service"
)

// textFile writes a text to train on and returns its path.
func textFile(t *testing.T, content string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "text.txt")
	if err := os.WriteFile(path, []byte(strings.Repeat(content, 20)), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// configured parses a Config from an environment.
func configured(t *testing.T, path string, variables ...string) Config {
	t.Helper()
	environment := map[string]string{"REKNIT_TRAINER_NODE": "n1", "REKNIT_TRAINER_TEXT": path}
	for i := 0; i < len(variables); i += 2 {
		environment[variables[i]] = variables[i+1]
	}
	var config Config
	if err := env.ParseWithOptions(&config, env.Options{Environment: environment}); err != nil {
		t.Fatal(err)
	}
	return config
}

func jobOf(t *testing.T, config Config) events.Job {
	t.Helper()
	training, _, err := config.Training()
	if err != nil {
		t.Fatal(err)
	}
	job, err := config.job(training)
	if err != nil {
		t.Fatal(err)
	}
	return job
}

func TestABadVariableIsNamed(t *testing.T) {
	path := textFile(t, "a poem of light. ")
	if err := configured(t, path).validate(); err != nil {
		t.Fatalf("the defaults: %v", err)
	}
	for variable, value := range map[string]string{
		"REKNIT_TRAINER_NODE":         "no spaces",
		"REKNIT_CONSENT_HOURS":        "22:00-22:00",
		"REKNIT_TRAINER_TEXT":         "",
		"REKNIT_TRAINER_STEPS":        "0",
		"REKNIT_TRAINER_GLOBAL_BATCH": "0",
		"REKNIT_TRAINER_MICRO_BATCH":  "5",
		"REKNIT_TRAINER_MEMORY_BYTES": "-1",
		"REKNIT_TRAINER_LISTEN":       "foo",
		"REKNIT_TRAINER_SHARD_PORT":   "99999",
		"REKNIT_TRAINER_PIPELINES":    "-1",
		"REKNIT_TRAINER_LEAST_STAGES": "-1",
		"REKNIT_TRAINER_MOST_STAGES":  "-1",
	} {
		var config Config
		err := service.Read(&config, map[string]string{"REKNIT_TRAINER_NODE": "n1", "REKNIT_TRAINER_TEXT": path, variable: value})
		if err == nil {
			err = config.validate()
		}
		if err == nil || !strings.HasPrefix(err.Error(), variable+": expected") {
			t.Errorf("%s=%q: got %v: expected an error that names it", variable, value, err)
		}
	}
	huge := configured(t, path, "REKNIT_TRAINER_GLOBAL_BATCH", "2000000000")
	if err := huge.validate(); err == nil || !strings.Contains(err.Error(), "REKNIT_TRAINER_GLOBAL_BATCH: expected at most 65536") {
		t.Errorf("2,000,000,000 samples a step: got %v", err)
	}
	stages := configured(t, path, "REKNIT_TRAINER_LEAST_STAGES", "3", "REKNIT_TRAINER_MOST_STAGES", "2")
	if err := stages.validate(); err == nil || !strings.Contains(err.Error(), "at least REKNIT_TRAINER_LEAST_STAGES, got 2") {
		t.Errorf("at least three stages and at most two: got %v", err)
	}
	_, _, err := configured(t, path, "REKNIT_TRAINER_WIDTH", "-3").Training()
	if err == nil || !strings.Contains(err.Error(), "REKNIT_TRAINER_WIDTH") {
		t.Errorf("a width of -3: got %v", err)
	}
	for _, listen := range []string{":7000", "0.0.0.0:7000", "[::]:7000"} {
		config := configured(t, path, "REKNIT_TRAINER_LISTEN", listen)
		if err := config.validate(); err == nil || !strings.Contains(err.Error(), "REKNIT_TRAINER_ADVERTISE") {
			t.Errorf("listening on %q: got %v: expected to be asked for the address that others reach", listen, err)
		}
		config.Advertise = "n1:7000"
		if err := config.validate(); err != nil {
			t.Errorf("listening on %q with an address to advertise: %v", listen, err)
		}
	}
}

func TestTheJobsDigestCoversWhatDeterminesTheResult(t *testing.T) {
	path := textFile(t, "a poem of light. ")
	digests := map[string]string{jobOf(t, configured(t, path)).Digest: "the defaults"}
	for name, config := range map[string]Config{
		"text":         configured(t, textFile(t, "another poem! ")),
		"seed":         configured(t, path, "REKNIT_TRAINER_SEED", "2"),
		"steps":        configured(t, path, "REKNIT_TRAINER_STEPS", "7"),
		"global batch": configured(t, path, "REKNIT_TRAINER_GLOBAL_BATCH", "8"),
		"micro-batch":  configured(t, path, "REKNIT_TRAINER_MICRO_BATCH", "2"),
		"blocks":       configured(t, path, "REKNIT_TRAINER_BLOCKS", "3"),
		"width":        configured(t, path, "REKNIT_TRAINER_WIDTH", "32"),
		"hidden":       configured(t, path, "REKNIT_TRAINER_HIDDEN", "64"),
	} {
		digest := jobOf(t, config).Digest
		if other, taken := digests[digest]; taken {
			t.Errorf("another %s: the job's digest is that of %s", name, other)
		}
		digests[digest] = "another " + name
	}
	other := configured(t, path, "REKNIT_TRAINER_NODE", "n2", "REKNIT_TRAINER_MEMORY_BYTES", "4096")
	if got, want := jobOf(t, other), jobOf(t, configured(t, path)); !reflect.DeepEqual(got, want) {
		t.Errorf("another node's job is %+v: expected the same, %+v", got, want)
	}
}

func TestTheJobIsOneThatAClusterTakes(t *testing.T) {
	config := configured(t, textFile(t, "a poem of light. "), "REKNIT_TRAINER_PIPELINES", "2",
		"REKNIT_TRAINER_MICRO_BATCH", "3")
	join := events.Join{Node: "n1", Incarnation: "1", Address: "127.0.0.1:1", MemoryBytes: 1, Job: jobOf(t, config)}
	if err := join.Validate(); err != nil {
		t.Fatal(err)
	}
	single := jobOf(t, configured(t, config.Text))
	for layer, profile := range join.Job.Layers {
		if profile.ForwardSeconds <= 0 || profile.BackwardSeconds < profile.ForwardSeconds {
			t.Errorf("layer %d takes %v s forward and %v s backward", layer, profile.ForwardSeconds, profile.BackwardSeconds)
		}
		if want := 3 * single.Layers[layer].ActivationBytes; profile.ActivationBytes != want {
			t.Errorf("layer %d keeps %d bytes of 3 samples: expected %d", layer, profile.ActivationBytes, want)
		}
	}
}
