package history

import (
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/reknit/reknit/events"
	"github.com/reknit/reknit/services/monitor/machine/changes"
	"github.com/reknit/reknit/services/reknit/tell"
)

// columns are the phases of the list, with those of a change that each sums up.
var columns = []struct {
	name   string
	phases []string
}{
	{"noticed", []string{changes.Notice}},
	{"agreed", []string{changes.Queue, changes.Repeat, changes.Consent, changes.Plan, changes.Restore, changes.Promise}},
	{"moved", []string{changes.PreCopy, changes.Transfer}},
	{"next step", []string{changes.Commit, changes.FirstStep}},
}

// mostHalt is of how many bytes the row of a stop or a reset tells, with the reason that somebody gave.
const mostHalt = 60

// list writes a line a change, and one for each stop, each reset and who was refused, in the order of time as far as generations leave that.
func list(w io.Writer, all []changes.Change, halts []changes.Halt) {
	table := tell.Table(w)
	fmt.Fprint(table, "generation\tbegan\tchange\tplan\t")
	for _, column := range columns {
		fmt.Fprint(table, column.name+"\t")
	}
	fmt.Fprintln(table, "in all\tstall\tbytes\tattempts")
	halt := func(until uint64) {
		for len(halts) > 0 && halts[0].Generation < until {
			fmt.Fprintf(table, "%d\t%s\t%s\t%s\n", halts[0].Generation, clock(halts[0].At), events.Shorten(halts[0].String(), mostHalt),
				strings.Repeat("-\t", 8)+"-")
			halts = halts[1:]
		}
	}
	for _, c := range all {
		halt(c.Generation)
		refusals := refused(c)
		for len(refusals) > 0 && refusals[0].at.Before(c.Began) {
			refusals[0].write(table)
			refusals = refusals[1:]
		}
		plan := c.State
		if c.State == changes.Working {
			plan = tell.Folded(c.Shape) + " " + c.Policy
		}
		fmt.Fprintf(table, "%d\t%s\t%s\t%s\t", c.Generation, clock(c.Began), c.What(), plan)
		for _, column := range columns {
			seconds := tell.Seconds(sum(c, column.phases))
			if slices.Contains(column.phases, changes.FirstStep) {
				seconds = atEnd(c, seconds)
			}
			fmt.Fprint(table, seconds+"\t")
		}
		fmt.Fprintf(table, "%s\t%s\t%s\t%d\n", atEnd(c, tell.Seconds(c.TotalSeconds)), atEnd(c, tell.Seconds(c.StallSeconds)),
			tell.Bytes(c.BytesMoved), len(c.Attempts))
		for _, refusal := range refusals {
			refusal.write(table)
		}
	}
	halt(math.MaxUint64)
	table.Flush()
}

// atEnd is what is known once all have made a step under a plan; with --unchanged nobody tells of one.
func atEnd(c changes.Change, known string) string {
	if c.State == changes.Committed {
		return "-"
	}
	return known
}

func sum(c changes.Change, phases []string) (seconds float64) {
	for _, phase := range c.Phases {
		for _, name := range phases {
			if phase.Name == name {
				seconds += phase.Seconds
			}
		}
	}
	return seconds
}

// refusedRow tells that somebody was refused something.
type refusedRow struct {
	generation uint64 // that was to come next
	what       string
	times      int
	at         time.Time // the last of them
}

func (r refusedRow) write(w io.Writer) {
	if r.times > 1 {
		r.what += fmt.Sprintf(", %d times", r.times)
	}
	fmt.Fprintf(w, "%d\t%s\t%s\trefused\t%s\n", r.generation, clock(r.at), r.what, strings.Repeat("-\t", 7)+"-")
}

// refused returns a row for each request that was refused on the way to a change and that its own row does not tell, in the order of time.
func refused(c changes.Change) (rows []refusedRow) {
	known := map[string]int{}
	for _, refusal := range c.Refusals {
		what := refusal.What()
		if refusal.Refused == events.RefusedMembership || c.State == changes.Refused && what == c.What() {
			continue
		}
		at, is := known[what]
		if !is {
			at = len(rows)
			known[what] = at
			rows = append(rows, refusedRow{generation: c.Generation, what: what})
		}
		rows[at].at, rows[at].times = refusal.At, rows[at].times+1
	}
	slices.SortStableFunc(rows, func(a, b refusedRow) int { return a.at.Compare(b.at) })
	return rows
}
