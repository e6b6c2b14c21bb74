package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/reknit/reknit/events"
)

// table tells the run for people.
func (c *course) table() string {
	var text strings.Builder
	fmt.Fprintf(&text, "%d nodes, %.2f days, seed %d; a step takes %v\n\n", c.nodes, c.long.Hours()/24, c.seed, c.steps.usual)
	out := tabwriter.NewWriter(&text, 0, 0, 2, ' ', 0)
	for _, k := range kinds {
		fmt.Fprintf(out, "%s\t%d, of them said lost %d\n", k.name, c.counts[k.name], c.lost[k.name])
	}
	fmt.Fprintf(out, "said lost after\t%v (median), %v at most\n", ms(middle(c.found)), ms(longest(c.found)))
	fmt.Fprintf(out, "living nodes said lost\t%d %v\n", len(c.falsely), c.falsely[:min(len(c.falsely), 5)])
	fmt.Fprintf(out, "plans, aborted negotiations, holds\t%d, %d, %d\n", c.told[events.PlanCommitted], c.told[events.Aborted],
		c.told[events.ClusterHeld])
	fmt.Fprintf(out, "training went on\t%.2f %% of the time\n", 100*c.steps.share())
	fmt.Fprintf(out, "steps that took longer\t%d, by %v (median), %v at most\n", len(c.steps.holds), ms(middle(c.steps.holds)),
		ms(longest(c.steps.holds)))
	fmt.Fprintf(out, "at the end\t%s\n", c.end)
	fmt.Fprintf(out, "\nstore\tmost held\tof its bound\tat the end\n")
	for i, store := range c.samples[len(c.samples)-1].stores { // Settle lifts the bounds
		most := c.most(i)
		fmt.Fprintf(out, "%s\t%s\t%.1f %%\t%s\n", store.Name, mib(most), 100*float64(most)/float64(store.Bound), mib(store.Held))
	}
	fmt.Fprintf(out, "\nmemory\tmean\tgrows a day by\tstandard error\n")
	settled := c.settled()
	for _, name := range c.machines() {
		t := fit(settled, name)
		fmt.Fprintf(out, "%s\t%s\t%+.2f %%\t%.2f %%\n", name, mib(int64(t.mean)), 100*t.slope/t.mean, 100*t.error/t.mean)
	}
	out.Flush()
	fmt.Fprintf(&text, "\nevents: %s\n", c.kinds())
	return text.String()
}

func (c *course) kinds() string {
	var list []string
	for _, kind := range slices.SortedFunc(maps.Keys(c.told), func(a, b events.Kind) int { return c.told[b] - c.told[a] }) {
		list = append(list, fmt.Sprintf("%s %d", kind, c.told[kind]))
	}
	return strings.Join(list, ", ")
}

func ms(d time.Duration) time.Duration { return d.Round(time.Millisecond) }

func mib(bytes int64) string { return fmt.Sprintf("%.3f MiB", float64(bytes)/(1<<20)) }

// machines lists what has a trend.
func (c *course) machines() []string {
	return slices.Sorted(maps.Keys(c.samples[len(c.samples)-1].machines))
}

// faults lists what must not be.
func (c *course) faults() []string {
	faults := slices.Clone(c.world.Violations)
	for _, lost := range c.falsely {
		faults = append(faults, "said lost though it lives: "+lost)
	}
	for i, store := range c.samples[len(c.samples)-1].stores {
		if most := c.most(i); most > store.Bound {
			faults = append(faults, fmt.Sprintf("%s: %d bytes, and its bound is %d", store.Name, most, store.Bound))
		}
	}
	for _, name := range c.machines() {
		if t := fit(c.settled(), name); t.grows() {
			faults = append(faults, fmt.Sprintf("%s: grows by %.0f bytes a day", name, t.slope))
		}
	}
	return faults
}
