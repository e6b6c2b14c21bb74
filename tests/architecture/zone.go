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

// sharedLines bounds shared, tests not counted. A commit that raises it says why: quarantine, fencing, the high-water mark of the log and
// repeats of large events stood at 1,930; what a full store, a lagging replica, a poisoned event, a second instance and an outage need, at
// 2,330; an event that kills the process, at 2,377; a memory that is written now and then, at 2,505; a deposed instance that hears in
// silence, at 2,526; a silent replay that must end where the instance before was, or say that it cannot, at 2,566; copies that take no
// lease without need, three replicas and a start that waits for the log, at 2,632; messages that come ahead, in order, by a consumer of the
// instance's own, at 2,700; a stream without a leader that is followed, a reader that goes back in vain, streams that can never be made and
// those with too few replicas, at 2,732; a memory that is written seldom, and before it is too much, at 2,743; old events and plans that
// go, and payloads that are compressed, at 2,870; keys of whoever asks from a command line, and settings that are spelt wrong, at 2,910;
// kits, and streams that are followed, and objects that are put and read, with nothing but what a node may do, at 3,120; signatures, at
// 3,260; health that tells a service that hangs, or gets nothing, from one that waits, and how far behind it is, at 3,410; spans of who
// says something first, and gauges of who acts and who is behind, at 3,460; streams of each cluster's own, signatures made with the key
// itself, and kits for connections that are no bus, at 3,545; a follower that tells its own end from a fault, at 3,548; a server that lets
// somebody in late, as one does on which thousands call at once, at 3,583; messages of a stream that are smaller than a memory may be, at
// 3,590; a memory that is not read through once more as it is written, which took 11 % of the monitor's time with 1,000 nodes, and one that
// could not be read again and is refused, at 3,605; a reader too many, who is told so and waits no longer than it reads, at 3,610; messages
// that are opened on all processors, at 3,640; a payload that is read in two requests, and streams that are waited for one by one, at
// 3,647; the import of a compressor, at 3,648; no memory that is written for what the log remembers, which was an eighth of what the
// monitor of 1,000 nodes did in a kill, at 3,655; messages that brought about nothing, which are acknowledged together, and some that are
// open before the machine has them, at 3,688; a part of a log that is read to its end, and why no server answers, at 3,752; a payload on
// the token of its name, at 3,823; a reader that deletes its consumer, and reads anew where what was to come does not, at 3,881; a machine
// that computes, of which others are told, and one that hangs, at 3,952; settings that are checked by their tags, where each program
// checked some of its own, at 4,192; payloads that are kept with a memory, so that a log is heard again as it was heard, and a wait for
// them that a liar cannot fill, at 4,400; a log that is told from another one, and what becomes of the disk under a server, at 4,800;
// nothing that is said, remembered or acknowledged in another log than the one in which it was decided, and how full the stores are, at
// 4,938; bounds of what is in flight, and messages that instances die of while they open them, at 5,450;
// requests that count once, and what alerts are of, counted from zero, at 5,517; what the streams are on a secured installation, and a log
// that is told from another by what was read of it, at 5,541; a reader that is deaf,
// a kit that is revoked, and a server of one machine that asks for keys, at 5,588; a lease
// that an older key signed, at 5,594; a server that lets nobody in without a kit, at 5,636; keys that services had before, and a kit that is
// read anew, at 5,720.
const sharedLines = 5740

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
