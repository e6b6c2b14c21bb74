package main

import (
	"context"
	"fmt"
	"os"
	"slices"
	"text/tabwriter"

	"github.com/reknit/reknit/tests/bench/figures"
	"github.com/reknit/reknit/tests/torch"
)

// costs are what one kind of fault cost the jobs of a system.
type costs struct {
	next, stall, usual, repeated []float64
	unhealed                     int // times that no step came within healLimit
}

func (c *costs) add(healing torch.Healing, healed bool) {
	if !healed {
		c.unhealed++
		return
	}
	c.next, c.stall = append(c.next, healing.Next), append(c.stall, healing.Stall)
	c.usual, c.repeated = append(c.usual, healing.Usual), append(c.repeated, float64(healing.Repeated))
}

// run plays all systems in turn, so that the machine's moods strike all of them alike.
func run(ctx context.Context, runs int, only, file string) error {
	place, err := torch.Here()
	if err != nil {
		return err
	}
	table := map[string]map[string]*costs{} // by system and fault
	skipped := map[string]bool{}            // systems that did not start
	all := systems(place)
	for number := range runs {
		for _, s := range all {
			if only != "" && s.name != only || skipped[s.name] {
				continue
			}
			fmt.Printf("run %d of %d: %s\n", number+1, runs, s.name)
			if table[s.name] == nil {
				table[s.name] = map[string]*costs{}
			}
			err := play(ctx, s, func(fault string, healing torch.Healing, healed bool) {
				fmt.Printf("  %-32s next step %6.2f s  stall %6.2f s  step %.2f s  repeated %d\n",
					fault, healing.Next, healing.Stall, healing.Usual, healing.Repeated)
				if table[s.name][fault] == nil {
					table[s.name][fault] = &costs{}
				}
				table[s.name][fault].add(healing, healed)
			})
			if err != nil && ctx.Err() == nil && s.rival {
				fmt.Printf("%s: skipped: %v\n", s.name, err)
				skipped[s.name] = true
			} else if err != nil {
				return fmt.Errorf("%s: %w", s.name, err)
			}
		}
	}
	print(all, table)
	return judge(table, file)
}

func rows() []string {
	names := []string{strikes[0].Name, joined}
	for _, strike := range strikes[1:] {
		names = append(names, strike.Name)
	}
	return names
}

// print shows a row for each fault and system that was played.
func print(all []system, table map[string]map[string]*costs) {
	out := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(out, "\nmedian (least to most)\tsystem\truns\tuntil the next step\tx reknit\tstall of the others\trepeated")
	for _, fault := range rows() {
		for _, s := range all {
			c := table[s.name][fault]
			if c == nil {
				continue
			}
			fmt.Fprintf(out, "%s\t%s\t%d\t%s\t%s\t%s\t%.3g\n", fault, s.name, len(c.next)+c.unhealed,
				c.spread(c.next), c.times(table[reknit][fault]), c.spread(c.stall), torch.Median(c.repeated))
		}
	}
	out.Flush()
}

// times says how many times as long as with others the next step took.
func (c *costs) times(others *costs) string {
	if others == nil || len(others.next) == 0 || len(c.next) == 0 {
		return "-"
	}
	return fmt.Sprintf("%.1f", torch.Median(c.next)/torch.Median(others.next))
}

func (c *costs) spread(seconds []float64) string {
	if len(seconds) == 0 {
		return fmt.Sprintf("not within %.0f s", healLimit.Seconds())
	}
	text := fmt.Sprintf("%.2f s (%.2f to %.2f)", torch.Median(seconds), slices.Min(seconds), slices.Max(seconds))
	if c.unhealed > 0 {
		text += fmt.Sprintf(", %d times not within %.0f s", c.unhealed, healLimit.Seconds())
	}
	return text
}

const (
	stallTarget = 0.5 // seconds that others stand at a join
	leaveSteps  = 1.0 // usual steps that others stand at a leave
)

// judge holds what was measured against the targets, beside torchrun at its tightest.
func judge(table map[string]map[string]*costs, file string) error {
	ours, theirs := table[reknit], table[tightest]
	if ours == nil {
		return nil
	}
	baseline := func(fault string, which func(*costs) []float64) float64 {
		if theirs[fault] == nil {
			return 0 // it was not played, and there is no baseline
		}
		return seconds(which(theirs[fault]))
	}
	next, stall := func(c *costs) []float64 { return c.next }, func(c *costs) []float64 { return c.stall }
	var report figures.Report
	for _, strike := range strikes {
		if c := ours[strike.Name]; c != nil {
			report.Add(figures.Row{
				Figure: strike.Name + ": to the next step", Unit: "s", Ours: seconds(c.next), Target: strike.target,
				Baseline: baseline(strike.Name, next), BaselineName: tightest, LeastRatio: 1,
			})
			report.Add(figures.Row{
				Figure: strike.Name + ": steps repeated", Unit: "steps", Ours: slices.Max(append(c.repeated, 0)), Target: none,
			})
		}
	}
	if c := ours[joined]; c != nil {
		report.Add(figures.Row{
			Figure: joined + ": stall of the others", Unit: "s", Ours: seconds(c.stall), Target: stallTarget,
			Baseline: baseline(joined, stall), BaselineName: tightest, LeastRatio: 1,
		})
	}
	if c := ours[torch.Leave.Name]; c != nil {
		report.Add(figures.Row{
			Figure: torch.Leave.Name + ": stall of the others", Unit: "s", Ours: seconds(c.stall),
			Target: leaveSteps * torch.Median(c.usual),
		})
	}
	return report.Finish(file)
}

// seconds is the median, and what was waited for where no job healed.
func seconds(healed []float64) float64 {
	if len(healed) == 0 {
		return healLimit.Seconds()
	}
	return torch.Median(healed)
}

// none is a target that zero alone reaches: for figures, a target of 0 is no target.
const none = 1e-9
