// Package kubernetes holds what deploy/kubernetes builds against what Kubernetes would say of it, without a cluster: its own types,
// decoded strictly, and its own rules for restricted pods. It is a module of its own, for what it needs is larger than all else.
package kubernetes

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	apps "k8s.io/api/apps/v1"
	core "k8s.io/api/core/v1"
	networking "k8s.io/api/networking/v1"
	disruption "k8s.io/api/policy/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/pod-security-admission/api"
	"k8s.io/pod-security-admission/policy"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"
	"sigs.k8s.io/yaml"
)

const (
	root      = "../.."
	manifests = root + "/deploy/kubernetes"
)

var services = []string{"monitor", "negotiator", "planner", "restorer"}

// installation is what a kustomization builds.
type installation struct {
	deployments []*apps.Deployment
	budgets     []*disruption.PodDisruptionBudget
	networks    []*networking.NetworkPolicy
	settings    []*core.ConfigMap
	secrets     map[string]*core.Secret
	namespace   *core.Namespace
}

func build(t *testing.T, folder string) *installation {
	t.Helper()
	built, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(), folder)
	if err != nil {
		t.Fatal(err)
	}
	i := &installation{secrets: map[string]*core.Secret{}}
	for _, resource := range built.Resources() {
		if err := i.add(resource.GetKind(), []byte(resource.MustYaml())); err != nil {
			t.Errorf("%s: %v", resource.CurId(), err)
		}
	}
	return i
}

// add decodes a resource as the server does that refuses fields it does not know.
func (i *installation) add(kind string, text []byte) error {
	switch kind {
	case "Deployment":
		return decode(text, &i.deployments)
	case "PodDisruptionBudget":
		return decode(text, &i.budgets)
	case "NetworkPolicy":
		return decode(text, &i.networks)
	case "ConfigMap":
		return decode(text, &i.settings)
	case "Secret":
		var secrets []*core.Secret
		err := decode(text, &secrets)
		i.secrets[secrets[0].Name] = secrets[0]
		return err
	case "Namespace":
		i.namespace = &core.Namespace{}
		return yaml.UnmarshalStrict(text, i.namespace)
	}
	return fmt.Errorf("expected a kind that is looked at here, got %s", kind)
}

func decode[T any](text []byte, into *[]*T) error {
	one := new(T)
	*into = append(*into, one)
	return yaml.UnmarshalStrict(text, one)
}

// secured provisions keys for a copy of the manifests, as deploy/README.md says, and builds it.
func secured(t *testing.T) *installation {
	t.Helper()
	folder := t.TempDir()
	if err := os.CopyFS(folder, os.DirFS(manifests)); err != nil {
		t.Fatal(err)
	}
	for _, what := range [][]string{
		{"security", "--host", "nats", "--server", "nats-0.nats-headless", "--server", "nats-1.nats-headless", "--server", "nats-2.nats-headless",
			"--institution", "alpha", "--node", "n1"},
		{"admission"},
	} {
		command := exec.Command("go", append([]string{"run", "./services/reknit/cmd/reknit", "provision", what[0],
			"--dir", filepath.Join(folder, "secured", "secret")}, what[1:]...)...)
		command.Dir, command.Env = root, append(os.Environ(), "GOWORK=")
		if output, err := command.CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, output)
		}
	}
	return build(t, filepath.Join(folder, "secured"))
}

func restricted(t *testing.T, pod core.PodTemplateSpec) []string {
	t.Helper()
	rules, err := policy.NewEvaluator(policy.DefaultChecks(), nil)
	if err != nil {
		t.Fatal(err)
	}
	level := api.LevelVersion{Level: api.LevelRestricted, Version: api.LatestVersion()}
	var refused []string
	for _, result := range rules.EvaluatePod(level, &pod.ObjectMeta, &pod.Spec) {
		if !result.Allowed {
			refused = append(refused, result.ForbiddenReason+": "+result.ForbiddenDetail)
		}
	}
	return refused
}

func TestANamespaceOfRestrictedPodsTakesEachService(t *testing.T) {
	for name, i := range map[string]*installation{"base": build(t, manifests+"/base"), "secured": secured(t)} {
		if level := i.namespace.Labels[api.EnforceLevelLabel]; level != string(api.LevelRestricted) {
			t.Errorf("%s: the namespace enforces %q", name, level)
		}
		var found []string
		for _, deployment := range i.deployments {
			found = append(found, deployment.Name)
			if refused := restricted(t, deployment.Spec.Template); len(refused) > 0 {
				t.Errorf("%s: %s: %s", name, deployment.Name, strings.Join(refused, "; "))
			}
			security := deployment.Spec.Template.Spec.Containers[0].SecurityContext
			if security.ReadOnlyRootFilesystem == nil || !*security.ReadOnlyRootFilesystem {
				t.Errorf("%s: %s: expected a root that cannot be written", name, deployment.Name)
			}
		}
		if slices.Sort(found); !slices.Equal(found, services) {
			t.Errorf("%s: expected %v, got %v", name, services, found)
		}
	}
}

// TestWhatKubernetesWouldRefuseIsSeen has the two judges refuse what they must: they are not deaf.
func TestWhatKubernetesWouldRefuseIsSeen(t *testing.T) {
	i := build(t, manifests+"/base")
	pod := i.deployments[0].Spec.Template
	pod.Spec.SecurityContext.RunAsNonRoot = nil
	if refused := restricted(t, pod); len(refused) != 1 || !strings.Contains(refused[0], "runAsNonRoot") {
		t.Errorf("a pod that may run as root is refused with %q", refused)
	}
	if err := i.add("Deployment", []byte("spec: {replica: 2}")); err == nil || !strings.Contains(err.Error(), "replica") {
		t.Errorf("a field that is spelt wrong is refused with %v", err)
	}
}

// TestACopyOfEachServiceStaysWhateverIsDrainedOrUpgraded looks at what a drain and a rollout may take away, and at what they wait for.
func TestACopyOfEachServiceStaysWhateverIsDrainedOrUpgraded(t *testing.T) {
	i := build(t, manifests+"/base")
	for _, deployment := range i.deployments {
		spec := deployment.Spec
		if *spec.Replicas != 2 || spec.Strategy.RollingUpdate.MaxUnavailable.IntValue() != 0 {
			t.Errorf("%s: expected two copies of which a rollout takes none before another is ready", deployment.Name)
		}
		container := spec.Template.Spec.Containers[0]
		if path := container.ReadinessProbe.HTTPGet.Path; path != "/readyz?exclude=standby" {
			t.Errorf("%s: a rollout waits for %s, which a copy that stands by never is", deployment.Name, path)
		}
		if path := container.LivenessProbe.HTTPGet.Path; path != "/healthz" {
			t.Errorf("%s: restarted by %s", deployment.Name, path)
		}
		if container.Resources.Requests.Memory().IsZero() || container.Resources.Requests.Cpu().IsZero() || container.Resources.Limits.Memory().IsZero() {
			t.Errorf("%s: expected requests, and a limit of memory", deployment.Name)
		}
		if !selects(t, spec.Selector, spec.Template) {
			t.Errorf("%s does not select its own pods", deployment.Name)
		}
		budgets := 0
		for _, budget := range i.budgets {
			if selects(t, budget.Spec.Selector, spec.Template) {
				budgets++
				if budget.Spec.MaxUnavailable.IntValue() != 1 {
					t.Errorf("%s: a drain takes %v", deployment.Name, budget.Spec.MaxUnavailable)
				}
			}
		}
		if budgets != 1 { // with two, no pod can be evicted
			t.Errorf("%s has %d budgets", deployment.Name, budgets)
		}
		if len(i.networks) != 1 || !selects(t, &i.networks[0].Spec.PodSelector, spec.Template) {
			t.Errorf("%s: expected a network policy that is about it", deployment.Name)
		}
	}
}

func selects(t *testing.T, selector *meta.LabelSelector, pod core.PodTemplateSpec) bool {
	t.Helper()
	what, err := meta.LabelSelectorAsSelector(selector)
	if err != nil {
		t.Fatal(err)
	}
	return what.Matches(labels.Set(pod.Labels))
}

// TestEachServiceHasItsOwnKitAndNoOther follows what is mounted to what provision has written.
func TestEachServiceHasItsOwnKitAndNoOther(t *testing.T) {
	i := secured(t)
	for _, deployment := range i.deployments {
		pod := deployment.Spec.Template.Spec
		if len(pod.Volumes) != 1 || len(pod.Containers[0].VolumeMounts) != 1 {
			t.Fatalf("%s: expected a kit, got %v", deployment.Name, pod.Volumes)
		}
		kit := i.secrets[pod.Volumes[0].Secret.SecretName]
		if kit == nil || !strings.HasPrefix(kit.Name, "kit-"+deployment.Name+"-") || len(kit.Data["user.creds"]) == 0 {
			t.Errorf("%s has the kit %v", deployment.Name, pod.Volumes[0].Secret.SecretName)
		}
		if kit != nil && deployment.Name == "negotiator" && len(kit.Data["admission.json"]) == 0 {
			t.Error("expected the policy in the negotiator's kit, for it does not start without one")
		}
		if mount := pod.Containers[0].VolumeMounts[0]; mount.Name != pod.Volumes[0].Name || mount.MountPath != i.settings[0].Data["REKNIT_NATS_KIT"] {
			t.Errorf("%s: the kit is at %s, and looked for at %s", deployment.Name, mount.MountPath, i.settings[0].Data["REKNIT_NATS_KIT"])
		}
	}
	if server := i.secrets["nats-server"]; server == nil || !strings.Contains(string(server.Data["accounts.conf"]), "resolver_preload") {
		t.Error("expected the secret nats-server, as secured/nats.yaml names it, with whose tokens are believed")
	}
}

func TestEachVariableIsASetting(t *testing.T) {
	page, err := os.ReadFile(root + "/deploy/settings.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, settings := range secured(t).settings {
		for name := range settings.Data {
			if !strings.Contains(string(page), "`"+name+"`") {
				t.Errorf("%s is not in deploy/settings.md", name)
			}
		}
	}
}
