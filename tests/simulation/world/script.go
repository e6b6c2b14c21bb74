package world

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/reknit/reknit/events"
)

// Script is a run: who there is, and what is done to them.
type Script struct {
	Cluster
	Faults []Fault
	Stays  string // a fault of one node that is not mended before all others have gone on; empty: none
}

// String tells a script as a person would write it.
func (s Script) String() string {
	lines := []string{fmt.Sprintf("seed %d: %v", s.Seed, s.Cluster)}
	for _, fault := range s.Faults {
		lines = append(lines, fault.String())
	}
	if s.Stays != "" {
		lines = append(lines, "then all is mended, but for "+s.Stays)
	}
	return strings.Join(lines, "\n")
}

// the window in which faults happen; then all is mended.
const (
	firstFault = 4 * time.Second
	lastFault  = 30 * time.Second
)

// NewScript draws a run from its seed.
func NewScript(seed uint64) Script {
	r := rand.New(rand.NewPCG(seed, 7))
	s := Script{Cluster: Cluster{Seed: seed, Nodes: 3 + r.IntN(4), Layers: 3 + r.IntN(2), Stages: 1 + r.IntN(2)}}
	if r.IntN(4) == 0 {
		s.Partitions = 2
	}
	for range 2 + r.IntN(5) {
		at := firstFault + time.Duration(r.Int64N(int64(lastFault-firstFault)))
		if len(s.Faults) > 0 && r.IntN(3) == 0 { // what comes close together is what goes wrong
			at = s.Faults[len(s.Faults)-1].At + time.Duration(r.Int64N(int64(time.Second)))
		}
		s.Faults = append(s.Faults, Fault{At: at.Truncate(time.Millisecond), Words: s.draw(r)})
	}
	s.Snapshots, s.Faults = withSnapshots(seed, s.Layers, s.Faults)
	s.Sites, s.Faults = withSites(seed, s.Nodes, s.Faults)
	s.Faults = withScripts(seed, s.Nodes, withSecond(seed, s.Nodes, withTrimming(seed, s.Faults)))
	s.Faults = withRests(seed, s.Nodes, withWithheld(seed, s.Nodes, s.Faults))
	if r.IntN(4) == 0 {
		s.Stays = fmt.Sprintf(staying[r.IntN(len(staying))], fmt.Sprintf("n%d", 1+r.IntN(s.Nodes)))
	}
	s.drawKind(r)
	if s.Snapshots > 0 {
		s.Snapshots, s.Faults = withFull(seed, s.Nodes, s.Snapshots, withDisk(seed, s.Nodes, s.Faults))
	}
	if s.Stays == "" {
		s.Stays = withWord(seed, s.Nodes)
	}
	if s.Stays == "" {
		s.Faults = withHolder(seed, s.Nodes, s.Layers, s.Faults)
	}
	s.Faults = withWipes(seed, withReset(seed, s.Snapshots, s.Faults))
	slices.SortStableFunc(s.Faults, func(a, b Fault) int { return int(a.At - b.At) })
	s.Steps = withEnd(seed, s.Faults)
	return s
}

// staying are the faults of one node without which the others must go on.
var staying = []string{"pause %s", "cut %s from hub", "mute %s", "deafen %s"}

// withEnd has a quarter of the jobs end amid the faults, or soon after: none where a copy is spoiled, for whether anybody
// compares it before the end is luck.
func withEnd(seed uint64, faults []Fault) (steps uint64) {
	spoils := func(fault Fault) bool { return strings.HasPrefix(fault.Words, "spoil") }
	if r := rand.New(rand.NewPCG(seed, 17)); r.IntN(4) == 0 && !slices.ContainsFunc(faults, spoils) {
		steps = 20 + r.Uint64N(200)
	}
	return steps
}

// drawKind makes some jobs data-parallel or sharded, and lets the batch of some follow the nodes.
func (s *Script) drawKind(r *rand.Rand) {
	switch kind := r.IntN(6); {
	case kind == 0:
		s.Kind, s.Stages = events.DataParallel, 0
	case kind == 1 && s.Partitions == 0:
		s.Kind = events.Sharded
	}
	if r.IntN(4) == 0 {
		s.SamplesPerNode = 2
	}
}

// withSnapshots has every third seed take snapshots, and all holders of a layer die. It draws by itself, so that what
// else a seed does is the same without.
func withSnapshots(seed uint64, layers int, faults []Fault) (every uint64, with []Fault) {
	r := rand.New(rand.NewPCG(seed, 13))
	if r.IntN(3) > 0 {
		return 0, faults
	}
	at := func() time.Duration {
		return (firstFault + time.Duration(r.Int64N(int64(lastFault-firstFault)))).Truncate(time.Millisecond)
	}
	faults = append(faults, Fault{At: at(), Words: fmt.Sprintf("kill holders of %d", r.IntN(layers))})
	if r.IntN(3) == 0 {
		faults = append(faults, Fault{At: at(), Words: fmt.Sprintf("bucket away for %ds", 1+r.IntN(30))})
	}
	for range r.IntN(3) {
		faults = append(faults, Fault{At: at(), Words: fmt.Sprintf("start n%d", 1+r.IntN(8))})
	}
	every = 4 + r.Uint64N(20)
	if r.IntN(3) == 0 {
		faults = append(faults, Fault{At: at(), Words: fmt.Sprintf("reset n%d for %ds", 1+r.IntN(4), 1+r.IntN(10))})
	}
	return every, faults
}

// drawn are the faults that a seed draws from, with how often each.
var drawn = []struct {
	weight int
	form   string
}{
	{6, "kill NODE"}, {6, "kill NODE for TIME"}, {6, "start NEW"}, {2, "leave NODE"}, {3, "pause NODE for TIME"},
	{3, "cut NODE from hub for TIME"}, {2, "mute NODE for TIME"}, {2, "deafen NODE for TIME"}, {2, "cut NODE from peers for TIME"}, {2, "cut NODE PEER for TIME"},
	{1, "link NODE PEER 0.1 for TIME"}, {1, "slow NODE 4 for TIME"}, {2, "hang NODE for TIME"},
	{2, "disconnect NODE PEER"}, {1, "connect NODE PEER"}, {2, "hub away for TIME"}, {1, "hub electing for TIME"}, {2, "hub isolated for TIME"},
	{1, "requests lost 0.2 for TIME"}, {2, "answers lost 0.2 for TIME"}, {1, "replicas lag 0.5 for TIME"}, {1, "clock jumps JUMP"},
	{1, "restart NODE TIMES"}, {1, "herd TIMES"}, {2, "state of NODE takes LONG for TIME"}, {2, "full STORE for TIME"},
	{2, "crash SERVICE"}, {4, "crash SERVICE before POINT COUNT"}, {1, "pause SERVICE for TIME"}, {2, "depose SERVICE for TIME"},
	{2, "spoil NODE"}, {3, "break NODE"}, {1, "break NODE for TIME"}, {2, "exit NODE"}, {2, "exit NODE for TIME"},
	{2, "kernel of NODE takes LONG for TIME"},
}

// points are where a service dies. Those of its start are reached by the next instance.
var points = []string{"publish", "publish", "remember", "acknowledge", "take-lease", "recall", "sign", "look-back", "consume", "drop"}

func (s Script) draw(r *rand.Rand) string {
	total := 0
	for _, d := range drawn {
		total += d.weight
	}
	pick, form := r.IntN(total), ""
	for _, d := range drawn {
		if pick < d.weight {
			form = d.form
			break
		}
		pick -= d.weight
	}
	node := r.IntN(s.Nodes)
	words := strings.NewReplacer(
		"NODE", fmt.Sprintf("n%d", 1+node), "PEER", fmt.Sprintf("n%d", 1+(node+1+r.IntN(s.Nodes-1))%s.Nodes),
		"NEW", fmt.Sprintf("n%d", s.Nodes+1+r.IntN(3)), "TIMES", fmt.Sprint(2+r.IntN(4)),
		"TIME", (500*time.Millisecond + time.Duration(r.ExpFloat64()*float64(5*time.Second))).Truncate(time.Millisecond).String(),
		"SERVICE", serviceNames[r.IntN(len(serviceNames))],
		"POINT", points[r.IntN(len(points))], "COUNT", fmt.Sprint(1+r.IntN(3)), "JUMP", fmt.Sprint(1+r.IntN(60)),
		"LONG", fmt.Sprint(1+r.IntN(60)), "STORE", storeNames[r.IntN(len(storeNames))],
	)
	return words.Replace(form)
}

// Outcome is how a run ended.
type Outcome struct {
	Violations []string
	Story      []string
	Trace      uint64
	Virtual    time.Duration
	Faults     int
	Changes    uint64 // committed plans
	Steps      uint64 // that were completed by anybody
	Held       bool   // the cluster rightly holds: no living process has what is missing
}

func (o Outcome) String() string {
	end := "all who live train, or the job is complete"
	if o.Held {
		end = "the cluster rightly holds: what is missing is nowhere"
	}
	if len(o.Violations) > 0 {
		end = strings.Join(o.Violations, "\n")
	}
	return fmt.Sprintf("%d steps, %d plans in %v: %s", o.Steps, o.Changes, o.Virtual, end)
}

// Play runs a script to its end.
func (s Script) Play(verbose bool) Outcome {
	w, held := s.play(verbose)
	w.endBuild()
	return Outcome{
		Violations: w.Violations, Story: w.Story, Trace: w.trace, Virtual: w.now, Faults: w.faults,
		Changes: w.generation(), Steps: w.newest, Held: held,
	}
}

func (s Script) play(verbose bool) (w *World, held bool) {
	w = New(s.Cluster, verbose)
	for _, fault := range s.Faults {
		w.run(fault.At)
		if err := w.Do(fault.Words); err != nil {
			panic(err) // scripts are drawn from the same table
		}
	}
	w.Run(time.Second)
	w.heal()
	if s.Stays != "" {
		w.othersGoOn(s.Stays)
		w.heal()
	}
	if held = w.goOn(); !held {
		w.compare()
	}
	w.judge()
	return w, held
}
