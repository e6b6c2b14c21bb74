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

// lifeDays is how many days a store has to suffice that drops nothing.
const lifeDays = 10

// table tells the run for people.
func (c *course) table() string {
	var text strings.Builder
	fmt.Fprintf(&text, "%d nodes, %.2f days, seed %d; a step takes %v\n\n", c.nodes, c.long.Hours()/24, c.seed, c.steps.usual)
	out := tabwriter.NewWriter(&text, 0, 0, 2, ' ', 0)
	for _, k := range kinds {
		fmt.Fprintf(out, "%s\t%d, of them said lost %d\n", k.name, c.counts[k.name], c.lost[k.name])
	}
	fmt.Fprintf(out, "said lost after\t%v (median), %v at most\n", ms(middle(c.found)), ms(longest(c.found)))
	fmt.Fprintf(out, "never found\t%v\n", c.unfound())
	fmt.Fprintf(out, "living nodes said lost\t%d %v\n", len(c.falsely), c.falsely[:min(len(c.falsely), 5)])
	fmt.Fprintf(out, "plans, aborted negotiations, holds\t%d, %d, %d\n", c.told[events.PlanCommitted], c.told[events.Aborted],
		c.told[events.ClusterHeld])
	fmt.Fprintf(out, "training went on\t%.2f %% of the time\n", 100*c.steps.share())
	fmt.Fprintf(out, "steps that took longer\t%d, by %v (median), %v at most\n", len(c.steps.holds), ms(middle(c.steps.holds)),
		ms(longest(c.steps.holds)))
	fmt.Fprintf(out, "at the end\t%s\n", c.end)
	fmt.Fprintf(out, "stretches of the data\t%d of 1,024 that the negotiator remembers at most\n", c.samples[len(c.samples)-1].stretches)
	fmt.Fprintf(out, "\nstore\tmost held\tcame a day\tneeds\tof its bound\n")
	for _, s := range c.filled() {
		fmt.Fprintf(out, "%s\t%s\t%s\t%s\t%.2f %%\n", s.Name, mib(s.most), mib(s.perDay), mib(s.needs(lifeDays)),
			100*s.needs(lifeDays)/float64(s.Bound))
	}
	fmt.Fprintf(out, "\nmemory\tmean\tgrows a day by\tstandard error\n")
	settled := c.settled()
	for _, name := range c.machines() {
		t := fit(settled, name)
		fmt.Fprintf(out, "%s\t%s\t%+.2f %%\t%.2f %%\n", name, mib(t.mean), 100*t.slope/t.mean, 100*t.error/t.mean)
	}
	out.Flush()
	fmt.Fprintf(&text, "\nevents: %s\n", c.kinds())
	return text.String()
}

func (c *course) kinds() string {
	var list []string
	for _, kind := range slices.SortedFunc(maps.Keys(c.told), func(a, b events.Kind) int { return c.told[b] - c.told[a] }) {
		list = append(list, fmt.Sprintf("%s %d (%.0f bytes)", kind, c.told[kind], float64(c.bytes[kind])/float64(c.told[kind])))
	}
	return strings.Join(list, ", ")
}

func ms(d time.Duration) time.Duration { return d.Round(time.Millisecond) }

func mib(bytes float64) string { return fmt.Sprintf("%.3f MiB", bytes/(1<<20)) }

// machines lists what has a trend.
func (c *course) machines() []string {
	return slices.Sorted(maps.Keys(c.samples[len(c.samples)-1].machines))
}

// unsound lists what must never happen.
func (c *course) unsound() []string {
	unsound := slices.Clone(c.world.Violations)
	for _, lost := range c.falsely {
		unsound = append(unsound, "said lost though it lives: "+lost)
	}
	for _, missed := range c.unfound() {
		unsound = append(unsound, "never found: "+missed)
	}
	return unsound
}

// overflowing lists the stores that do not suffice.
func (c *course) overflowing() []string {
	var overflowing []string
	for _, s := range c.filled() {
		if needs := s.needs(lifeDays); needs > float64(s.Bound) {
			overflowing = append(overflowing, fmt.Sprintf("%s needs %s, and its bound is %s", s.Name, mib(needs), mib(float64(s.Bound))))
		}
	}
	return overflowing
}

// growing lists what grows.
func (c *course) growing() []string {
	var growing []string
	for _, name := range c.machines() {
		if t := fit(c.settled(), name); t.grows() {
			growing = append(growing, fmt.Sprintf("%s grows by %.0f bytes a day", name, t.slope))
		}
	}
	return growing
}
