// Package world runs the five real machines of Reknit, with model trainers, on one virtual clock and one seed: no
// goroutine, no real time. A run is a function of its script alone.
package world

import (
	"cmp"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/reknit/reknit/events"
	agent "github.com/reknit/reknit/services/agent/machine"
	"github.com/reknit/reknit/services/agent/retention"
	monitor "github.com/reknit/reknit/services/monitor/machine"
	negotiator "github.com/reknit/reknit/services/negotiator/machine"
	"github.com/reknit/reknit/services/negotiator/protocol"
	"github.com/reknit/reknit/shared/ledger"
	"github.com/reknit/reknit/tests/simulation/builds"
	"github.com/reknit/reknit/tests/simulation/builds/pipe"
)

const cluster = "opticks"

// World is one run.
type World struct {
	clock
	network
	agentsHear  map[events.Kind]bool
	random      *rand.Rand
	job         *job
	hub         *hub
	services    map[string]*service
	nodes       []*node
	named       map[string]*node // nodes
	collectives map[collectiveName]*collective
	places      map[uint64]*places // by generation of the plan
	trace       uint64             // a hash of all that was told
	Story       []string
	verbose     bool
	Heard       func(events.Event) // hears all that a stream stores; nil: nobody does
	Stepped     func(step uint64)  // hears that a trainer has completed a step; nil: nobody does
	Violations  []string
	newest      uint64             // completed step that any trainer has reached
	resumed     uint64             // step from which the newest plan goes on
	wentBack    bool               // the newest plan, to a step that an older one trained
	reset       *events.JobReset   // of what was trained, since the newest plan; nil: that counts
	anew        uint64             // generation of the plan that followed the last one; zero: there was none
	startNodes  int                // that the first plan waits for
	lost        *events.Commitment // the newest; nil: none was
	faults      int
	requests    int                       // of users
	stains      map[int][]version         // by unit: copies that the script spoiled
	witnesses   map[int]map[*process]bool // by unit that was spoiled: whose copy was known when it first was
	unjudged    int                       // events since the log was judged
	chatter     chatter
	begins      bool           // in a log that lost all training is about to begin, as its newest negotiation says
	stopped     bool           // training was, since the newest plan
	heldFor     string         // why the cluster holds, as was told last since the newest plan; empty: it does not
	scripted    []*script      // that run, or have yet to end
	misled      bool           // the log was found wrong
	lies        bool           // a node lies
	emptied     bool           // payloads were dropped before all had read them
	wiped       bool           // the hub's store was, or an older one was restored
	isNew       bool           // it was, and no plan was committed since
	toldOf      uint64         // the newest generation that joins in the newest log tell of, with the plan's digest
	unknown     bool           // that log went on from a plan before one of which nobody who lives knows
	accepts     bool           // a user accepts an older log, where the cluster asks for it
	judged      int            // events of the log that are kept; zero: all
	livedUnder  map[string]int // by the digest of each plan: the life of which it is; zero, too, before there was a second
	before      uint64         // generations of the lives before, of which nobody was left who knew
	planned     []ledger.Plan
	missed      map[string]time.Duration // by node: since when the newest log says that it waits for it
	trained     []ledger.Entry
	folded      int                  // of trained, when it was folded last
	steps       uint64               // of the job; zero: it has no end
	undecided   bool                 // the cluster holds: of a spoiled copy and a right one nobody can tell which is which
	isHeld      bool                 // the log said so since the newest plan
	endedAt     time.Duration        // when the log said that it is complete
	ended       bool                 // it is complete, as the log says
	taken       map[incarnation]bool // for lost
	snapshots   uint64               // steps between two, on each disk; zero: none are taken
	// compareEvery is after how many steps replicas are compared.
	compareEvery uint64
	siteCount    int
	heartbeats   []*heartbeat            // that are under way no more
	bucket       *tier                   // of snapshots that all read
	deadly       *deadly                 // nil: no step is
	withheld     bool                    // a node has kept something to itself that others wait for
	awaitsNewer  bool                    // a reset has waited for who has a newer snapshot
	lastHeld     map[int]time.Duration   // by unit: when a process ended that had a healthy copy
	doubled      bool                    // two processes of one name have a disk between them
	told         map[string]retention.ID // by tier: the newest snapshot that the log says is complete
	untold       map[string]bool         // by tier: a log that is lost told of that, and no later one
	made         []madeUnder             // by plan, the oldest first
	held         *events.HeldStep        // told last; nil: no step was
	program      string                  // of an earlier build; empty: there is none
	build        *builds.Build           // that runs it; nil: nobody is of it yet
	healed       bool                    // an operator tries again whatever step is held
}

type collectiveName struct {
	generation uint64
	step       uint64
}

// serviceNames are in the order in which they are started.
var serviceNames = []string{"monitor", "negotiator", "planner", "restorer"}

// Cluster is who there is at the beginning of a run, and what they train.
type Cluster struct {
	Seed       uint64
	Nodes      int // that join at once
	Layers     int
	Partitions int // of the optimizer state; zero: it stays whole
	Stages     int // that a pipeline has at least
	// Kind is the job's, and SamplesPerNode its rule for the batch. Zero: pipelines, and a batch that stays.
	Kind           string
	Admission      protocol.Admission
	SamplesPerNode int
	Sites          int    // at which they stand in turn; zero: they name none
	Snapshots      uint64 // steps between two, on each disk; zero: none are taken
	Steps          uint64 // of the job; zero: it has no end
	// LayerSeconds is what a micro-batch takes in each layer, forth and back. Zero: 0.03.
	LayerSeconds float64
	CompareEvery uint64 // steps between two comparisons of replicas; zero: 8
	Judged       int    // events of the log that are kept and judged with tests/invariants; zero: all
	Earlier      string // the program of an earlier build (tests/simulation/builds); empty: what is downgraded is of this one
	Provisioned  bool   // the stores have the bounds and ages of an installation, and large payloads lie apart as there
}

// String tells a cluster as a scenario does.
func (c Cluster) String() string {
	words := fmt.Sprintf("world nodes=%d layers=%d partitions=%d stages=%d", c.Nodes, c.Layers, c.Partitions, c.Stages)
	if c.Kind != "" || c.SamplesPerNode > 0 {
		words += fmt.Sprintf(" kind=%s samples=%d", cmp.Or(c.Kind, events.Pipelined), c.SamplesPerNode)
	}
	if c.Sites > 0 {
		words += fmt.Sprintf(" sites=%d", c.Sites)
	}
	if c.Steps > 0 {
		words += fmt.Sprintf(" steps=%d", c.Steps)
	}
	if c.Snapshots > 0 {
		words += fmt.Sprintf(" snapshots=%d", c.Snapshots)
	}
	for i, node := range slices.Sorted(maps.Keys(c.Admission.Nodes)) {
		words += fmt.Sprint([]string{" admits=", ","}[min(i, 1)], node, "/", c.Admission.Nodes[node])
	}
	if c.Admission.Nodes != nil {
		words += fmt.Sprintf(" quorum=%d", c.Admission.Quorum)
	}
	return words
}

// ReadCluster reads what String tells.
func ReadCluster(line string) (Cluster, error) {
	c := Cluster{Seed: 1}
	line, admits, isGuarded := strings.Cut(line, " admits=")
	line, every, keeps := strings.Cut(line, " snapshots=")
	line, steps, ends := strings.Cut(line, " steps=")
	line, sites, stands := strings.Cut(line, " sites=")
	first, rest, isMore := strings.Cut(line, " kind=")
	const begins = "world nodes=%d layers=%d partitions=%d stages=%d"
	_, err := fmt.Sscanf(first, begins, &c.Nodes, &c.Layers, &c.Partitions, &c.Stages)
	if err != nil {
		err = fmt.Errorf("expected %q, then in this order kind= and samples= together, sites=, snapshots=, admits=, got %q: %w",
			begins, first, err)
	}
	if err == nil && isMore {
		_, err = fmt.Sscanf(rest, "%s samples=%d", &c.Kind, &c.SamplesPerNode)
	}
	if err == nil && stands {
		_, err = fmt.Sscan(sites, &c.Sites)
	}
	if err == nil && ends {
		_, err = fmt.Sscan(steps, &c.Steps)
	}
	if err == nil && keeps {
		_, err = fmt.Sscan(every, &c.Snapshots)
	}
	if err == nil && isGuarded {
		c.Admission, err = readAdmission(admits)
	}
	return c, err
}

// readAdmission reads "n1/a,n2/b quorum=1": which nodes may join, and their institutions, and how many of these must
// approve of others.
func readAdmission(text string) (admission protocol.Admission, err error) {
	nodes, quorum, _ := strings.Cut(text, " quorum=")
	admission.Nodes = map[string]string{}
	for listed := range strings.SplitSeq(nodes, ",") {
		node, institution, _ := strings.Cut(listed, "/")
		admission.Nodes[node] = institution
	}
	_, err = fmt.Sscan(quorum, &admission.Quorum)
	return admission, err
}

// New returns a world with its services and nodes.
func New(c Cluster, verbose bool) *World {
	w := &World{
		network: newNetwork(), random: rand.New(rand.NewPCG(c.Seed, 11)), job: newJob(c),
		hub: newHub(c), services: map[string]*service{}, collectives: map[collectiveName]*collective{}, places: map[uint64]*places{},
		stains: map[int][]version{}, witnesses: map[int]map[*process]bool{},
		chatter: chatter{mended: -1},
		verbose: verbose, snapshots: c.Snapshots, named: map[string]*node{}, agentsHear: map[events.Kind]bool{},
		compareEvery: cmp.Or(c.CompareEvery, 8), judged: c.Judged, siteCount: c.Sites, steps: c.Steps, taken: map[incarnation]bool{},
		startNodes: c.Nodes, livedUnder: map[string]int{}, program: c.Earlier,
		told: map[string]retention.ID{}, untold: map[string]bool{}, lastHeld: map[int]time.Duration{},
	}
	w.bucket = &tier{units: w.job.Units()}
	settings := map[string]any{
		"monitor": monitorSettings(), "negotiator": negotiatorSettings(c), "restorer": cluster,
		"planner": pipe.Planner{Cluster: cluster, MinReplicas: 2, SwitchSeconds: 0.05},
	}
	ticks := map[string]time.Duration{
		"monitor": monitorTick, "negotiator": 250 * time.Millisecond, "planner": time.Second, "restorer": time.Second,
	}
	for _, name := range serviceNames {
		s := &service{World: w, name: name, settings: settings[name], tickEvery: ticks[name]}
		if name == "monitor" {
			s.afterward = sendProbes
		}
		w.services[name] = s
		s.start()
	}
	for range c.Nodes {
		w.after(w.jitter(time.Second), w.AddNode().launcher(w))
	}
	return w
}

func (n *node) launcher(w *World) func() { return func() { w.launch(n) } }

// AddNode adds a host, on which nothing runs yet.
func (w *World) AddNode() *node {
	name := fmt.Sprintf("n%d", len(w.nodes)+1)
	n := &node{name: name, host: name, disk: &tier{}, slowness: 1, reads: 1, freezes: len(w.nodes)%2 == 0}
	if w.siteCount > 0 {
		n.site = fmt.Sprint("s", 1+len(w.nodes)%w.siteCount)
	}
	w.nodes = append(w.nodes, n)
	w.named[n.name] = n
	return n
}

// monitorTick is longer than in services/monitor: ticks are most of what happens in a quiet cluster.
const monitorTick = 500 * time.Millisecond

func monitorSettings() monitor.Settings {
	settings := monitor.Defaults(cluster)
	settings.Detector.TickSeconds = monitorTick.Seconds()
	return settings
}

func negotiatorSettings(c Cluster) negotiator.Settings {
	return negotiator.Settings{
		Cluster: cluster, Admission: c.Admission, StartNodes: c.Nodes, AnswerTimeout: 5 * time.Second, TransferTime: 30 * time.Second,
		FailuresPrior: 1.0 / (24 * 3600), AttemptsLimit: 5, PreCopySteps: 1, HoldTime: 30 * time.Second,
	}
}

func (w *World) agentSettings(n *node, process string, stands *leftover) agent.Settings {
	settings := agent.Settings{
		Cluster: cluster, Node: n.name, Process: process, Address: n.host + ":7001", ShardAddress: n.host + ":7002", MemoryBytes: 1 << 30,
		Site: n.site, Trained: n.left.trained(), Past: n.left.past(),
		Job: w.job.Job, PreCopies: true, Tiers: w.tiers(), Consent: n.consents,
	}
	if stands != nil {
		settings.MemoryBytes, settings.Tiers = 1, nil
	}
	return settings
}

// Run lets virtual time pass.
func (w *World) Run(time time.Duration) { w.run(w.now + time) }

func (w *World) byName(name string) *node { return w.named[name] }

// latency is what a message takes to the hub or from it.
func (w *World) latency() time.Duration { return time.Millisecond + w.jitter(4*time.Millisecond) }

func (w *World) jitter(most time.Duration) time.Duration {
	return time.Duration(w.random.Int64N(int64(most) + 1))
}

func (w *World) slowness(node string) float64 { return w.byName(node).slowness }

// keptCollectives are the steps of a plan in which nodes may be at a time, and more.
const keptCollectives = 64

func (w *World) collectiveOf(plan *events.Plan, step uint64) *collective {
	name := collectiveName{plan.Generation, step}
	if w.collectives[name] == nil {
		w.collectives[name] = newCollective(w, plan, step)
		delete(w.collectives, collectiveName{plan.Generation, step - keptCollectives}) // nobody is so far behind
	}
	return w.collectives[name]
}

// completed hears that a trainer has completed a step.
func (w *World) completed(p *process) {
	if p.before < w.before || p.generation < w.anew {
		return // it does not know yet that this was given up
	}
	if w.newest = max(w.newest, p.done); w.Stepped != nil {
		w.Stepped(p.done)
	}
}

// violation tells that something happened that must never happen.
func (w *World) violation(format string, args ...any) {
	what := fmt.Sprintf(format, args...)
	w.tell("VIOLATION", "%s", what)
	w.Violations = append(w.Violations, what)
}
