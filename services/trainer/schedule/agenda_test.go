package schedule

import (
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
)

// simulation runs every node's agenda with given durations; a message takes a random time where slow is set.
type simulation struct {
	routes  []Route
	nodes   []string
	agendas map[string]*Agenda
	free    map[string]float64 // when the node can take its next task
	coming  []arrival
	peak    map[string]int // most micro-batches in flight
	held    map[string]int
	random  *rand.Rand
	slow    float64
}

type arrival struct {
	at   float64
	node string
	task Task
}

func newSimulation(routes []Route, random *rand.Rand, slow float64) *simulation {
	s := &simulation{routes: routes, agendas: map[string]*Agenda{}, free: map[string]float64{},
		peak: map[string]int{}, held: map[string]int{}, random: random, slow: slow}
	for _, route := range routes {
		for _, stage := range route {
			s.agendas[stage.Node] = NewAgenda(routes, stage.Node)
		}
	}
	s.nodes = slices.Sorted(maps.Keys(s.agendas))
	return s
}

// run returns the time at which all tasks are done. Forward passes take 1 a layer, backward passes 2.
func (s *simulation) run(t *testing.T) float64 {
	now, end := 0.0, 0.0
	for {
		for _, node := range s.nodes {
			if s.free[node] > now {
				continue
			}
			if task, ok := s.agendas[node].Next(); ok {
				s.start(node, task, now)
				end = max(end, s.free[node])
			}
		}
		next, ok := s.nextInstant(now)
		if !ok {
			break
		}
		now = next
		s.deliver(t, now)
	}
	for node, agenda := range s.agendas {
		if agenda.Left() > 0 {
			t.Fatalf("node %q stands still with %d tasks left", node, agenda.Left())
		}
	}
	return end
}

func (s *simulation) start(node string, task Task, now float64) {
	route := s.routes[task.MicroBatch]
	stage := route[task.Hop]
	duration := float64(stage.End - stage.First)
	following := Task{task.MicroBatch, task.Hop + 1, false}
	if task.Backward {
		duration *= 2
		following = Task{task.MicroBatch, task.Hop - 1, true}
		s.held[node]--
	} else {
		s.held[node]++
		s.peak[node] = max(s.peak[node], s.held[node])
	}
	s.free[node] = now + duration
	if following.Hop >= 0 && following.Hop < len(route) {
		delay := s.slow * s.random.Float64()
		s.coming = append(s.coming, arrival{s.free[node] + delay, route[following.Hop].Node, following})
	}
}

func (s *simulation) nextInstant(now float64) (float64, bool) {
	next, ok := 0.0, false
	consider := func(at float64) {
		if at > now && (!ok || at < next) {
			next, ok = at, true
		}
	}
	for _, at := range s.free {
		consider(at)
	}
	for _, a := range s.coming {
		consider(a.at)
	}
	return next, ok
}

func (s *simulation) deliver(t *testing.T, now float64) {
	var later []arrival
	for _, a := range s.coming {
		if a.at > now {
			later = append(later, a)
		} else if err := s.agendas[a.node].Arrived(a.task); err != nil {
			t.Fatal(err)
		}
	}
	s.coming = later
}

func TestNoLayoutAndNoDelayStopsTheNodes(t *testing.T) {
	for seed := range uint64(500) {
		random := rand.New(rand.NewPCG(seed, 3))
		layout := randomLayout(random)
		t.Log("seed", seed)
		newSimulation(routesOf(t, layout), random, 20).run(t)
	}
}

// oneForwardOneBackward is the textbook order: warm-up forwards, then pairs, then the backwards that are left. It
// returns when a pipeline of equal stages ends, where messages take no time.
func oneForwardOneBackward(stages, microBatches int, forward, backward float64) float64 {
	type pass struct {
		stage, microBatch int
		backward          bool
	}
	orders := make([][]pass, stages)
	for s := range orders {
		warm := min(microBatches, stages-1-s)
		for m := range warm {
			orders[s] = append(orders[s], pass{s, m, false})
		}
		for m := range microBatches {
			if warm+m < microBatches {
				orders[s] = append(orders[s], pass{s, warm + m, false})
			}
			orders[s] = append(orders[s], pass{s, m, true})
		}
	}
	ends := map[pass]float64{}
	for total := 2 * stages * microBatches; len(ends) < total; {
		for s := range orders {
			last, at := 0.0, 0
			for at < len(orders[s]) && ends[orders[s][at]] > 0 {
				last = ends[orders[s][at]]
				at++
			}
			if at == len(orders[s]) {
				continue
			}
			p := orders[s][at]
			needs, took := pass{s - 1, p.microBatch, false}, forward
			if p.backward {
				needs, took = pass{s + 1, p.microBatch, true}, backward
			}
			if needs.stage >= 0 && needs.stage < stages {
				if ends[needs] == 0 {
					continue
				}
				last = max(last, ends[needs])
			}
			ends[p] = last + took
		}
	}
	return ends[pass{0, microBatches - 1, true}]
}

func TestEqualStagesRunInOneForwardOneBackward(t *testing.T) {
	for stages := 1; stages <= 6; stages++ {
		for microBatches := 1; microBatches <= 9; microBatches++ {
			ends := make([]int, stages)
			for s := range ends {
				ends[s] = s + 1
			}
			s := newSimulation(routesOf(t, Layout{Pipelines: []Pipeline{pipeline("n", microBatches, ends...)}}), nil, 0)
			s.random = rand.New(rand.NewPCG(1, 1))
			got, want := s.run(t), oneForwardOneBackward(stages, microBatches, 1, 2)
			if got != want {
				t.Errorf("%d stages, %d micro-batches: took %v: expected 1F1B's %v", stages, microBatches, got, want)
			}
			for i, stage := range s.routes[0] {
				if bound := min(microBatches, stages-i); s.peak[stage.Node] != bound {
					t.Errorf("%d stages, %d micro-batches: %d in flight on stage %d: expected %d", stages, microBatches,
						s.peak[stage.Node], i, bound)
				}
			}
		}
	}
}

func TestBackwardComesFirst(t *testing.T) {
	routes := routesOf(t, Layout{Pipelines: []Pipeline{pipeline("n", 3, 1, 2)}})
	agenda := NewAgenda(routes, "n0")
	for _, want := range []Task{{0, 0, false}, {1, 0, false}} {
		if got, ok := agenda.Next(); !ok || got != want {
			t.Fatalf("next is %v, %v: expected %v", got, ok, want)
		}
	}
	if got, ok := agenda.Next(); ok {
		t.Fatalf("next is %v: expected to wait with two in flight and two stages to go", got)
	}
	if err := agenda.Arrived(Task{0, 0, true}); err != nil {
		t.Fatal(err)
	}
	for _, want := range []Task{{0, 0, true}, {2, 0, false}} {
		if got, ok := agenda.Next(); !ok || got != want {
			t.Fatalf("next is %v, %v: expected %v", got, ok, want)
		}
	}
}

func TestInputNobodyWaitsForIsRefused(t *testing.T) {
	routes := routesOf(t, Layout{Pipelines: []Pipeline{pipeline("n", 1, 1, 2)}})
	agenda := NewAgenda(routes, "n1")
	if err := agenda.Arrived(Task{0, 1, false}); err != nil {
		t.Fatal(err)
	}
	for name, task := range map[string]Task{
		"a second time":       {0, 1, false},
		"another node's":      {0, 0, true},
		"of its own making":   {0, 1, true},
		"of no micro-batch":   {7, 1, false},
		"of no stage of ours": {0, 5, false},
	} {
		if err := agenda.Arrived(task); err == nil {
			t.Errorf("input that came %s was taken: %v", name, task)
		}
	}
}
