package kubernetes

import (
	"os"
	"regexp"
	"strings"
	"testing"

	core "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"
)

// values are those of the NATS chart that decide whether a restricted namespace takes its pods.
type values struct {
	Container, Reloader struct{ Merge core.Container }
	PodTemplate         struct {
		Merge struct{ Spec core.PodSpec }
	}
}

func readValues(t *testing.T) (text string, v values) {
	t.Helper()
	data, err := os.ReadFile(manifests + "/nats.yaml")
	if err == nil {
		err = yaml.Unmarshal(data, &v)
	}
	if err != nil {
		t.Fatal(err)
	}
	return string(data), v
}

func TestANamespaceOfRestrictedPodsTakesTheServersToo(t *testing.T) {
	_, v := readValues(t)
	pod := core.PodTemplateSpec{Spec: v.PodTemplate.Merge.Spec}
	pod.Spec.Containers = []core.Container{v.Container.Merge, v.Reloader.Merge}
	if refused := restricted(t, pod); len(refused) > 0 {
		t.Error(strings.Join(refused, "; "))
	}
}

// The limits are written twice, for the chart writes the servers' configuration itself.
func TestTheServersHaveTheLimitsOfNatsConf(t *testing.T) {
	text, _ := readValues(t)
	conf, err := os.ReadFile(root + "/deploy/nats/nats.conf")
	if err != nil {
		t.Fatal(err)
	}
	limits := regexp.MustCompile(`(?m)^ *(max_\w+|write_deadline|ping_\w+|sync_interval|strict): *"?(\w+)"?`).FindAllStringSubmatch(string(conf), -1)
	if len(limits) < 12 {
		t.Errorf("found %d limits in nats.conf, expected at least 12", len(limits))
	}
	chart := map[string]string{"max_memory_store": "maxSize: 256Mi", "max_file_store": "size: 32Gi"} // has names of its own for two
	for _, limit := range limits {
		name, value := limit[1], limit[2]
		if own := chart[name]; own != "" && strings.Contains(text, own) {
			continue
		}
		if !regexp.MustCompile(`\b` + name + `: (<< )?` + value + `\b`).MatchString(text) {
			t.Errorf("nats.yaml lacks %s: %s", name, value)
		}
	}
}
