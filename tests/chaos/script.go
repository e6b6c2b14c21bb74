package main

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"time"
)

// churn is what a seed does to a cluster.
type churn struct {
	Seed     uint64
	Trainers int // at the start
	Steps    uint64
	Script   string
	Actions  int
	Follows  bool // layers move while training goes on, however small they are; else only large ones, which there are none
	Overlaps bool // a trainer may be killed while another one's death heals
	// Partitioned has three pipelines keep two copies of each of two partitions of the optimizer state: no two keep the
	// same.
	Partitioned bool
}

// flags are those of reknit dev that say what the seed trains.
func (c churn) flags() []string {
	flags := []string{"--trainers", fmt.Sprint(c.Trainers), "--steps", fmt.Sprint(c.Steps), "--seed", fmt.Sprint(c.Seed)}
	if c.Partitioned {
		flags = append(flags, "--pipelines", fmt.Sprint(leastTrainers), "--optimizer-partitions", "2")
	}
	return flags
}

// Bounds of a script. Three trainers are two pipelines, of which one has two stages: the least that has all the parts.
const (
	leastTrainers = 3
	mostTrainers  = 7
	leastBursts   = 4
	mostBursts    = 6
	mostCuts      = 2  // of the three links of three trainers
	burstActions  = 3  // at most, one right behind the other
	lastOneByOne  = 20 // the last seed whose kills of trainers wait for each other
)

// Steps behind the last burst, so that training outlasts the script: some for the end, and for each action what a
// machine of 20 steps a second trains until it is done and healed.
const (
	lastSteps   = 40
	actionSteps = 12
)

var services = []string{"monitor", "negotiator", "planner", "restorer"}

// writer writes a script, a burst of actions after the other.
type writer struct {
	random   *rand.Rand
	lines    []string
	burst    []string // what the burst under way did
	alive    int      // trainers
	free     int      // of them, those that were there before the burst and that it has not touched
	joined   int      // trainers ever started
	cuts     int      // links disconnected and not connected again
	overlaps bool     // a burst may kill two trainers
	whole    bool     // nobody went since the last cut, so that the link can be connected again
}

// churnOf writes the script of a seed. A burst begins when every change before it has healed; its further actions
// follow within a second or two, whatever is under way by then.
func churnOf(seed uint64) churn {
	random := rand.New(rand.NewPCG(seed, 0xc4a05))
	trainers := leastTrainers + 1 + random.IntN(3)
	w := &writer{random: random, alive: trainers, joined: trainers, overlaps: seed > lastOneByOne}
	if random.IntN(3) == 0 { // while the cluster forms; a trainer that dies then is missed for ever
		w.act("after "+w.pause().String(), "kill "+w.service())
	}
	step := uint64(0)
	for range leastBursts + random.IntN(mostBursts-leastBursts+1) {
		step += 8 + random.Uint64N(20)
		w.burst, w.free = nil, w.alive
		when := fmt.Sprintf("at %d", step)
		for range 1 + random.IntN(burstActions) {
			w.act(when, w.choose())
			when = "after " + w.pause().String()
		}
	}
	return churn{
		Seed: seed, Trainers: trainers, Steps: step + lastSteps + actionSteps*uint64(len(w.lines)),
		Script: strings.Join(w.lines, "\n") + "\n", Actions: len(w.lines),
		Follows: seed%2 == 0, Overlaps: w.overlaps, Partitioned: seed%3 == 2,
	}
}

func (w *writer) act(when, what string) {
	w.burst = append(w.burst, what)
	w.lines = append(w.lines, when+" "+what)
}

// pause draws from 1 ms to 500 ms, as many below 22 ms as above: the phases of a change last from one to hundreds.
func (w *writer) pause() time.Duration {
	milliseconds := math.Exp(w.random.Float64() * math.Log(500))
	return time.Duration(milliseconds) * time.Millisecond
}

// deed is one way to disturb a cluster.
type deed struct {
	weight   int
	possible func(*writer) bool
	do       func(*writer) string
}

var deeds = []deed{
	{4, (*writer).mayKill, func(w *writer) string { return w.lose("kill any") }},
	{12, (*writer).mayKillBeside, func(w *writer) string { return w.lose("kill any") }},
	{4, (*writer).mayRestart, func(w *writer) string { return "kill " + w.service() }},
	{3, (*writer).mayJoin, (*writer).join},
	{9, (*writer).mayReplace, (*writer).join},
	{2, (*writer).mayLeave, func(w *writer) string { return w.lose("leave any") }},
	{2, (*writer).mayDisconnect, (*writer).disconnect},
	{3, (*writer).mayConnect, (*writer).connect},
}

// choose draws a deed that is possible now, by weight.
func (w *writer) choose() string {
	var drawn []deed
	for _, d := range deeds {
		if d.possible(w) {
			drawn = append(drawn, slices.Repeat([]deed{d}, d.weight)...)
		}
	}
	return drawn[w.random.IntN(len(drawn))].do(w)
}

func (w *writer) did(what string) bool { return slices.Contains(w.burst, what) }

func (w *writer) lose(how string) string {
	w.alive--
	w.free--
	w.whole = false
	return how
}

// "any" stands for trainers that nothing is under way with, so a burst uses each but once.
func (w *writer) mayLeave() bool { return w.alive > leastTrainers && w.free > 0 && !w.did("leave any") }

func (w *writer) mayDisconnect() bool { return w.cuts < mostCuts && w.free > 2 }

func (w *writer) disconnect() string {
	w.free -= 2
	w.cuts++
	w.whole = true
	return "disconnect any"
}

func (w *writer) mayConnect() bool {
	return w.cuts > 0 && w.whole && w.free > 1 && !w.did("disconnect any")
}

func (w *writer) connect() string {
	w.free -= 2
	w.cuts--
	w.whole = w.cuts > 0
	return "connect any"
}

// mayKill reports whether a trainer may be killed: only one a burst, for the second could hold the last replica. After
// a reroute one trainer may hold the last replica, too, so there must be a choice.
func (w *writer) mayKill() bool { return w.maySpare() && !w.did("kill any") }

// mayKillBeside reports whether a trainer may be killed whatever else this burst killed: dev waits until the layers can
// spare one.
func (w *writer) mayKillBeside() bool { return w.overlaps && w.maySpare() }

func (w *writer) maySpare() bool { return w.alive > leastTrainers && w.free > 1 }

func (w *writer) mayJoin() bool { return w.alive < mostTrainers }

// mayReplace makes it likely that those who were killed are soon replaced, so that there are others to kill.
func (w *writer) mayReplace() bool { return w.overlaps && w.alive < leastTrainers+2 }

func (w *writer) mayRestart() bool { return len(w.running()) > 0 }

// running returns the services that the burst has not killed.
func (w *writer) running() []string {
	return slices.DeleteFunc(slices.Clone(services), func(service string) bool { return w.did("kill " + service) })
}

func (w *writer) service() string {
	running := w.running()
	return running[w.random.IntN(len(running))]
}

func (w *writer) join() string {
	w.alive++
	w.joined++
	return fmt.Sprintf("join n%d", w.joined)
}
