package inventory

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"github.com/reknit/reknit/events"
	"github.com/reknit/reknit/services/monitor/machine/changes"
	"github.com/reknit/reknit/services/monitor/machine/overlay"
	"github.com/reknit/reknit/services/reknit/history"
	"github.com/reknit/reknit/services/reknit/tell"
	"github.com/reknit/reknit/shared/bus"
)

const statusHelp = `Tells in a screen how a cluster is: the plan in force and how training gets on under it, nodes by state, services, and the change
that is under way or was the last. The plan comes from its stream, changes and states from the log, steps from heartbeats, and
each service is asked whether it works.

Steps are told as so many that are made: the one whose step.index in a script is 620 is the 621st, and step 621 here once it is made. A step
that is held is named by its step.index.

Exit status: 0 all is well, 3 something is not, and is named last; 1, 2 and 4 as everywhere.`

// Overview is how a cluster is.
type Overview struct {
	Cluster    string          `json:"cluster"`
	Generation uint64          `json:"generation"` // zero: there is no plan
	Committed  *time.Time      `json:"committed,omitempty"`
	Policy     string          `json:"policy,omitempty"`
	Shape      string          `json:"shape,omitempty"`       // for example "2+3": the lengths of the pipelines
	Step       uint64          `json:"step"`                  // the highest that a heartbeat told
	Steps      uint64          `json:"steps,omitempty"`       // that the job has; left out where that is not known
	Left       float64         `json:"leftSeconds,omitempty"` // until its end, at the pace of now
	Loss       float64         `json:"loss,omitempty"`
	Diverged   uint64          `json:"lossNotFiniteSince,omitempty"` // the first of the last steps whose loss is no number or infinite
	Still      float64         `json:"stillSeconds,omitempty"`       // since a trainer completed a step last; zero: not known
	StepTime   float64         `json:"stepSeconds"`                  // of the median node
	Pace       float64         `json:"paceSeconds,omitempty"`        // from one completed step to the next; zero: not known
	Predicted  float64         `json:"predictedStepSeconds"`         // by the planner; zero: no speed was known to it
	Guessed    bool            `json:"guessed,omitempty"`            // nothing was predicted: what layers take was not known
	Stepless   bool            `json:"stepless,omitempty"`           // nobody knows the steps, for scripts run --unchanged
	Nodes      map[string]int  `json:"nodes"`                        // by state
	Waiting    []string        `json:"waiting,omitempty"`            // who wants a place, why it has none yet, and until when
	Idle       []string        `json:"idle,omitempty"`               // which nodes have no place because of their links, and what they need
	Gone       []overlay.Gone  `json:"gone,omitempty"`               // who went lately, and is not back
	Services   []Service       `json:"services"`
	End        *changes.End    `json:"end,omitempty"`    // of the job; left out while it goes on
	Stop       *changes.Stop   `json:"stop,omitempty"`   // of training, which may go on from its snapshot; left out while it does
	Reset      string          `json:"reset,omitempty"`  // why what was trained was given up; empty: it counts
	Change     *changes.Change `json:"change,omitempty"` // under way, or the last that came to something
	// Refused is what somebody was refused lately, of whom nothing newer is known.
	Refused  *changes.Refusal `json:"refused,omitempty"`
	Heard    int              `json:"heard"`             // nodes whose heartbeats are
	Awaited  []string         `json:"awaited,omitempty"` // suspected nodes with a place, who may keep all waiting
	Delayed  []overlay.Delay  `json:"delayed,omitempty"` // for whom others wait in their step for longer than is usual
	Alone    int              `json:"alone"`             // units of the model, layers most often, that one living node alone holds
	Problems []string         `json:"problems"`

	Snapshots []overlay.Snapshot `json:"snapshots,omitempty"` // what is known of each tier

	// Prediction compares the predicted step with measured ones; left out before both are known.
	Prediction *overlay.Prediction `json:"prediction,omitempty"`

	Names map[string]string `json:"names,omitempty"` // what people call the nodes, by id, where ids are keys

	remains overlay.Remains // of those who are missed
	mistake string          // with which all scripts ended before a step was made; empty: they did not
	secured bool            // kits can be revoked
	begins  string          // how training begins after the reset
}

// refusalStays is for how long a refusal is told.
const refusalStays = time.Hour

// Status is `reknit status`.
func Status() *cobra.Command {
	return show(&cobra.Command{Use: "status", Short: "tell in a screen how the cluster is", Long: statusHelp},
		func(ctx context.Context, b *bus.Bus, names *overlay.Names, _ []string) (Overview, error) {
			o, err := Look(ctx, b)
			if err == nil {
				o.Names = names.In(o)
			}
			return o, err
		})
}

// Look returns how a cluster is. It listens to heartbeats for a second.
func Look(ctx context.Context, b *bus.Bus) (Overview, error) {
	o := Overview{Cluster: b.Cluster(), Nodes: map[string]int{}, secured: b.Secured()}
	var known *overlay.Overlay
	var heard map[string]events.Pulse
	var last []changes.Change
	var asked errgroup.Group
	asked.Go(func() (err error) { heard, err = Pulses(ctx, b); return err })
	asked.Go(func() (err error) { o.Services, err = Services(ctx, b); return err })
	asked.Go(func() (err error) { // one reading after the other: with a kit they share the name of one consumer
		if known, err = read(ctx, b); err == nil {
			last, err = history.Last(ctx, b, 1)
		}
		return err
	})
	if err := asked.Wait(); err != nil {
		return o, err
	}
	o.takePlan(known)
	o.Stepless, o.Snapshots = known.Stepless(), known.Snapshots()
	o.End, o.Stop = known.End(), known.Stop()
	if reset := known.Reset(); reset != nil {
		o.Reset, o.begins = reset.Reason, overlay.SaysReset(*reset)
	}
	nodes := known.Nodes(heard)
	for _, node := range nodes {
		o.takeNode(node)
	}
	o.Problems, o.StepTime, o.Alone = missing(nodes), overlay.StepTime(nodes), alone(known, nodes)
	o.Pace, o.Gone = overlay.Pace(nodes), known.Gone(heard, time.Now())
	o.remains = overlay.RemainsOf(nodes, overlay.NewestOf(o.Snapshots), time.Now())
	if o.mistake = mistake(nodes); o.mistake != "" {
		o.Problems = nil // which name it, too
	}
	switch {
	case o.End != nil:
		o.Step, o.StepTime, o.Pace = o.End.Step, 0, 0
	case o.Stop != nil:
		o.Step, o.StepTime, o.Pace, o.Alone = o.Stop.Step, 0, 0, 0
	case o.Reset != "":
		o.Step, o.StepTime, o.Pace, o.Alone, o.Problems = 0, 0, 0, 0, nil
	default:
		o.Delayed = known.Delays(nodes)
		steps, left := known.Course(o.Step, cmp.Or(o.Pace, o.StepTime))
		o.Steps, o.Left = steps, left.Seconds()
	}
	o.takeChanges(last, known.Refusal())
	if change := o.Change; o.waits() && change.Held.Step != nil { // so many are made before it
		o.Step = max(o.Step, change.Held.Step.Step)
	}
	isOver := o.Reset != "" && o.Change != nil && o.Change.Generation <= o.Generation
	if isOver || (o.Stop != nil || o.Reset != "") && !overlay.AnyWaits(nodes) {
		o.Change = nil // of before, or of nodes that came since, and are gone again
	}
	if o.Heard == 0 && len(o.remains.Keep) == 0 { // what was in the memory of agents is gone with them
		o.Snapshots = slices.DeleteFunc(o.Snapshots, func(tier overlay.Snapshot) bool { return !tier.Outlives() })
	}
	o.judge()
	return o, nil
}

// takeChanges takes the last change that was not refused, withdrawn or to stop training, and what was refused lately.
func (o *Overview) takeChanges(last []changes.Change, refused *changes.Refusal) {
	for i := range last {
		if state := last[i].State; state != changes.Refused && state != changes.Withdrawn && state != changes.Stopped {
			o.Change = &last[i]
		}
	}
	if refused != nil && time.Since(refused.At) < refusalStays {
		o.Refused = refused
	}
}

// isDeserted reports whether nobody trains any more, and some ended otherwise than by the end of the training.
func (o *Overview) isDeserted() bool {
	return o.Generation > 0 && o.End == nil && o.Stop == nil && o.Reset == "" && o.Heard == 0 &&
		(o.Nodes[overlay.Silent]+o.Nodes[overlay.Suspected]+o.Nodes[overlay.Lost]+o.Nodes[overlay.Leaving] > 0 || o.remains.Any())
}

// waits reports whether all wait for a plan, and none is possible for those who live.
func (o *Overview) waits() bool { return o.Change != nil && o.Change.Stops() }

// alone counts the units that one living node alone holds under the plan in force. A node that leaves holds them until it has left.
func alone(known *overlay.Overlay, nodes []overlay.Node) (count int) {
	plan, _ := known.Plan()
	if plan == nil {
		return 0
	}
	holders, unitsOf := make([]int, plan.UnitCount()), plan.UnitsOfAll()
	for _, node := range nodes {
		if node.State == overlay.Training || node.State == overlay.Leaving {
			for unit := range events.Each(unitsOf[node.Node]) {
				holders[unit]++
			}
		}
	}
	for _, holding := range holders {
		if holding == 1 {
			count++
		}
	}
	return count
}

func (o *Overview) takePlan(known *overlay.Overlay) {
	if plan, committed := known.Plan(); plan != nil {
		o.Generation, o.Committed = plan.Generation, &committed
		o.Policy, o.Shape, o.Predicted = plan.Policy, plan.Shape(), plan.Predicted.StepSeconds
		o.Prediction = known.Prediction()
		if o.Guessed = plan.Predicted.Unmeasured; o.Guessed {
			o.Predicted = 0
		}
	}
}

func (o *Overview) takeNode(node overlay.Node) {
	o.Nodes[node.State]++
	if node.State == overlay.Suspected && node.Pipeline != nil {
		o.Awaited = append(o.Awaited, node.Node)
	}
	if node.State == overlay.Spare && node.Reason != "" {
		o.Idle = append(o.Idle, node.Node+": "+node.Reason)
	}
	if (node.State == overlay.Joining || node.State == overlay.Starting) && waits(node) != "" {
		o.Waiting = append(o.Waiting, node.Node+": "+node.Reason)
	}
	if node.Pulse != nil && node.Pulse.Script != nil && len(node.Pulse.Script.Awaits) > 0 {
		o.Waiting = append(o.Waiting, node.Node+": "+node.Reason)
	}
	o.Step = max(o.Step, node.Step)
	if node.Pulse != nil {
		o.takePulse(node)
	}
}

// held is why the cluster holds, where a line of its own tells that; empty where nobody trains any more, of which all is said at once.
func (o Overview) held() string {
	if o.Change == nil || o.Change.Held == nil || o.End != nil || o.isDeserted() {
		return ""
	}
	return o.Change.Held.Reason
}

func (o Overview) wrong() []string {
	problems, held := slices.Clone(o.Problems), o.held()
	for i, problem := range problems {
		if rest, is := strings.CutPrefix(problem, theClusterHolds+held); is && held != "" {
			problems[i] = "the cluster holds" + rest
		}
	}
	return problems
}

func (o Overview) tell(w io.Writer) {
	table := tell.Table(w)
	fmt.Fprintf(table, "cluster\t%s\n", o.Cluster)
	switch {
	case o.Reset != "":
		fmt.Fprintf(table, "plan\tnone since the reset; generation %d was the last\n", o.Generation)
	case o.Generation > 0:
		fmt.Fprintf(table, "plan\tgeneration %d, %s by %s, committed %s\n", o.Generation, tell.Folded(o.Shape), o.Policy,
			o.Committed.Local().Format("01-02 15:04:05"))
	}
	switch {
	case o.End != nil:
		fmt.Fprintf(table, "job\tcomplete since %s: %s\n\t%s\n", o.End.At.Local().Format("01-02 15:04:05"), o.says(), o.longer())
	case o.Stop != nil:
		fmt.Fprintf(table, "training\t%s\n", o.Stop)
	case o.Reset != "":
		fmt.Fprintf(table, "training\t%s\n", strings.TrimPrefix(o.begins, "training "))
	case o.isDeserted() && o.Step > 0 && !o.Stepless:
		fmt.Fprintf(table, "training\tstopped at step %d: no node is heard\n", o.Step)
	case o.isDeserted():
		fmt.Fprintln(table, "training\tstopped: no node is heard")
	case o.waits() && o.Step > 0 && !o.Stepless:
		fmt.Fprintf(table, "training\tstopped at step %d: the cluster holds\n", o.Step)
	case o.waits() && o.Generation > 0:
		fmt.Fprintln(table, "training\tstopped: the cluster holds")
	case o.Stepless && o.Generation > 0:
		fmt.Fprintln(table, "training\tsteps are not known: --unchanged")
	case o.Step > 0 && len(o.Awaited) > 0:
		fmt.Fprintf(table, "training\tstep %d%s, waits for %s; %s\n", o.Step, o.course(),
			strings.Join(o.Awaited[:min(mostNamed, len(o.Awaited))], ", "), o.pace())
	case o.Step > 0:
		fmt.Fprintf(table, "training\tstep %d%s, %s\n", o.Step, o.course(), o.pace())
	}
	var nodes []string
	for _, state := range slices.Sorted(maps.Keys(o.Nodes)) {
		does := state
		if state == overlay.Training && o.waits() {
			does = "waiting"
		}
		nodes = append(nodes, fmt.Sprintf("%d %s", o.Nodes[state], does))
	}
	if len(o.Gone) > 0 {
		nodes = append(nodes, fmt.Sprintf("%d gone", len(o.Gone)))
	}
	fmt.Fprintf(table, "nodes\t%s\n", cmp.Or(strings.Join(nodes, ", "), "none"))
	listed(table, "gone", shown(o.Gone, o.secured))
	listed(table, "waits", o.Waiting)
	listed(table, "spare", o.Idle)
	if o.Alone > 0 && o.End == nil && !o.waits() && !o.Stepless {
		fmt.Fprintf(table, "copies\t%s in one node alone: its loss takes training back to a snapshot, or to the start\n",
			tell.Count(o.Alone, "part of the model is", "parts of the model are"))
	}
	for _, tier := range o.Snapshots {
		fmt.Fprintf(table, "snapshot\t%s\n", row(tier, time.Now()))
	}
	for _, service := range o.Services {
		fmt.Fprintf(table, "%s\t%s\n", service.Service, service.says())
	}
	o.tellChange(table)
	if o.Refused != nil {
		fmt.Fprintf(table, "refused\t%s, %s ago (%s): %s\n", o.Refused.What(), time.Since(o.Refused.At).Round(time.Second),
			o.Refused.At.Local().Format("01-02 15:04:05"), o.Refused.Reason)
	}
	table.Flush()
}

// tellChange tells of the change that is under way or was the last, and why the cluster holds.
func (o Overview) tellChange(w io.Writer) {
	if o.Change == nil {
		return
	}
	what, held := ": "+o.Change.What(), o.held()
	if held != "" {
		fmt.Fprintf(w, "held\t%s\n", held)
	}
	switch isHold := o.Change.IsHold(); {
	case isHold && held != "":
		what = ""
	case isHold:
		what = ": " + o.Change.Held.Reason
	}
	fmt.Fprintf(w, "change\tto generation %d%s; %s\n", o.Change.Generation, what, stands(*o.Change, o.Stepless))
}

// listed tells some nodes a line each, and how many there are beside.
func listed(w io.Writer, what string, nodes []string) {
	for _, node := range nodes[:min(mostNamed, len(nodes))] {
		fmt.Fprintf(w, "%s\t%s\n", what, node)
	}
	if more := len(nodes) - mostNamed; more > 0 {
		fmt.Fprintf(w, "\t%d more: reknit nodes\n", more)
	}
}

// shown are the lines that tell who is gone.
func shown(all []overlay.Gone, secured bool) (lines []string) {
	for _, one := range all {
		lines = append(lines, one.Says(secured))
	}
	return lines
}

// stands says how far a change is. The first step under a plan is not awaited where nobody knows of steps.
func stands(c changes.Change, stepless bool) string {
	took := tell.Seconds(c.TotalSeconds)
	switch {
	case c.State == changes.Committed && stepless:
		return "done in " + took + "; steps are not known: --unchanged"
	case c.State == changes.Working:
		return "done in " + took
	case c.State == changes.Committed:
		return "committed, and some have not trained under it yet, after " + took
	case c.State == changes.Negotiating:
		return negotiates(c, took)
	case len(c.Attempts) > 0:
		return fmt.Sprintf("it is %s, %s", c.State, took)
	}
	return "it is " + c.State
}
