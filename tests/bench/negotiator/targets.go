package main

import (
	"errors"
	"fmt"

	"github.com/reknit/reknit/services/reknit/processes"
	"github.com/reknit/reknit/tests/bench/figures"
)

// The most that a change, a service and a herd may cost.
const (
	mostTimes       = 8 // what the broker alone takes
	mostTimesSynced = 3 // that, where each write is on three disks
	mostServiceMiB  = 512
	mostGenerations = 3
)

// judged are the sizes at which a change has a target.
var judged = map[int]bool{6: true, 100: true, 1000: true}

// judge fails where a target is missed, a change did not end, or a living node was said lost.
func (b bench) judge(results []*result, herds []*herd) error {
	var report figures.Report
	var wrong error
	times := float64(mostTimes)
	if b.servers > 1 {
		times = mostTimesSynced
	}
	for _, r := range results {
		wrong = errors.Join(wrong, r.failed)
		if r.mistaken > 0 {
			wrong = errors.Join(wrong, fmt.Errorf("%d nodes: %d living ones were said lost", r.nodes, r.mistaken))
		}
		for _, c := range r.costs {
			if least := r.floor.of(c.change, r.nodes); judged[r.nodes] && least > 0 && len(c.times) > 0 {
				report.Add(figures.Row{
					Figure: fmt.Sprintf("%s among %d", c.change.name, r.nodes), Unit: "times the broker alone",
					Ours: quantile(c.times, 0.5).Seconds() / least.Seconds(), Target: times,
				})
			}
		}
		for _, name := range processes.Services {
			report.Add(figures.Row{
				Figure: fmt.Sprintf("memory of the %s with %d", name, r.nodes), Unit: "MiB",
				Ours: float64(r.uses[name].bytes >> 20), Target: mostServiceMiB,
			})
		}
	}
	for _, h := range herds {
		wrong = errors.Join(wrong, h.failed)
		if h.mistaken > 0 {
			wrong = errors.Join(wrong, fmt.Errorf("%s: %d living nodes were said lost", h.what, h.mistaken))
		}
		report.Add(figures.Row{Figure: h.what, Unit: "generations", Ours: float64(h.generations), Target: mostGenerations})
	}
	fmt.Println()
	return errors.Join(wrong, report.Finish(""))
}
