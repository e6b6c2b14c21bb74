package architecture

import (
	"slices"
	"strings"
)

// zone is a part of the house with import rules of its own. A folder's path says its zone.
type zone string

const (
	words   zone = "words"   // events: what is said
	wires   zone = "wires"   // shared: how it travels
	pure    zone = "ring 0"  // numbers in, numbers out
	machine zone = "ring 1"  // events in, events out, deterministic
	edge    zone = "ring 2"  // touches the world
	judge   zone = "tests"   // may import everything; nobody imports it
	nowhere zone = "nowhere" // no place for Go code
)

// mayImport lists, for each zone, the zones of the same service, of events and of shared that it may import.
var mayImport = map[zone][]zone{
	words:   {words},
	wires:   {words, wires},
	pure:    {pure},
	machine: {words, pure, machine},
	edge:    {words, wires, pure, machine, edge},
	judge:   {words, wires, pure, machine, edge, judge},
}

// mayReach lists the services that may import other services.
var mayReach = map[string][]string{
	"reknit":  {"agent", "monitor", "negotiator", "planner", "restorer", "trainer"}, // starts them all in one process
	"trainer": {"agent"},                                                            // the SDK is made for trainers
}

// worldly are the services that are all ring 2: they exist to touch the world.
var worldly = []string{"reknit"}

// edgeFolders are public folders of ring 2: others configure what is in them, so that they cannot be internal.
var edgeFolders = []string{
	"services/agent/shards", "services/agent/links", "services/agent/mtls", "services/agent/channel", "services/agent/seal",
	"services/agent/local", "services/agent/snapshots",
}

// sharedOrder is no wire: trainers and the judge must agree on which sample stands where, in two languages.
const sharedOrder = "shared/ledger"

// sharedPackages is all that shared may hold. A package enters when three services use it, and when it knows no
// node, link, plan or shard; each has its reason here.
var sharedPackages = map[string]string{
	"shared/bus":       "every service publishes and consumes events, exactly once in effect",
	"shared/service":   "every service runs its machine in the same loop",
	"shared/telemetry": "every service logs, traces and counts alike",
	"shared/embedded":  "the command, the agent and the tests start a NATS server in their own process",
}

// thirdParty is what production code may depend on, by the beginning of the import path.
var thirdParty = map[string]string{
	"github.com/nats-io/":               "the broker is the engine",
	"github.com/cloudevents/sdk-go/v2/": "the envelope, by the people who specify it",
	"go.opentelemetry.io/":              "traces and metrics",
	"github.com/caarlos0/env/v11":       "configuration from the environment",
	"gocloud.dev/":                      "snapshots in S3-compatible stores, folders and memory behind one interface",
	"github.com/prometheus/":            "metrics over HTTP",
	"github.com/klauspost/compress/":    "memories in which keys come again further apart than gzip looks back",
	"go.yaml.in/yaml/v3":                "the cluster that reknit plan reads: the maintained parser, which tells line numbers",
	"github.com/schollz/progressbar/v3": "the progress of dev and watch on a terminal",
	"github.com/spf13/":                 "commands, flags and completion: cobra and its pflag (services/reknit/README.md says why)",
	"golang.org/x/sync/":                "groups of fetches that fail together",
	"golang.org/x/term":                 "whether somebody looks on",
}

// apart are the modules that are in no workspace, where what they need would choose the versions of what the services need.
var apart = map[string]string{
	"tests/kubernetes": "Kubernetes' own types and rules: make test-kubernetes",
}

// topLevel is what may stand at the top of the checkout.
var topLevel = []string{
	".ci", ".github", ".gitignore", ".golangci.yml", ".dockerignore", ".env", ".gitattributes",
	"CHANGELOG.md", "LICENSE", "Makefile", "README.md", "deploy", "events", "go.work", "services", "shared", "tests",
}

const modulePrefix = "github.com/reknit/reknit/"

// zoneOf tells the zone of a folder, and its service where it belongs to one.
func zoneOf(folder string) (zone, string) {
	parts := strings.Split(folder, "/")
	switch {
	case parts[0] == "events":
		return words, ""
	case folder == sharedOrder:
		return pure, ""
	case parts[0] == "shared":
		return wires, ""
	case parts[0] == "tests":
		return judge, ""
	case parts[0] == "services" && len(parts) > 1:
		return ringOf(folder, parts[2:], parts[1]), parts[1]
	}
	return nowhere, ""
}

func ringOf(folder string, inside []string, service string) zone {
	switch {
	case under(folder, edgeFolders) || slices.Contains(worldly, service):
		return edge
	case len(inside) == 0 || inside[0] == "cmd" || inside[0] == "internal":
		return edge
	case inside[0] == "machine":
		return machine
	}
	return pure
}

// under reports whether a path is one of the roots or below one.
func under(name string, roots []string) bool {
	for _, root := range roots {
		if name == root || strings.HasPrefix(name, root+"/") {
			return true
		}
	}
	return false
}
