package machine

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/reknit/reknit/events"
)

// node is a machine with a trainer beside it. What the machine has done is told in words: each action is one line.
type node struct {
	t       *testing.T
	machine *Machine
	told    []string // since the last expect
	tasks   []Action // that were given out and have not ended
	slow    bool     // the trainer's state does not answer by itself
	looks   bool     // who has its name, before it asks again
	taken   bool     // its name is, by another process
	holds   []events.Holding
	claims  []events.Claim
	plans   map[uint64]string // digests of the plans heard, by generation
	said    int               // events, for their ids
	joined  int               // incarnations
	minutes int               // that it waited after its last step
	ids     []string          // of what it told meanwhile
	ending  events.Digests    // the last of that
}

var now = time.Unix(1_000_000, 0)

var job = events.Job{
	Digest: events.Digest([]byte("job")), GlobalBatch: 1, MicroBatch: 1,
	Layers: []events.LayerProfile{{ParameterBytes: 1}, {ParameterBytes: 1}},
}

// newNode returns n1, which has asked for a place as incarnation i1.
func newNode(t *testing.T, alter ...func(*Settings)) *node {
	settings := Settings{Cluster: "c", Node: "n1", Process: "i", Address: "a:1", MemoryBytes: 1 << 20, Job: job, PreCopies: true}
	for _, alter := range alter {
		alter(&settings)
	}
	n := &node{t: t, machine: New(settings), plans: map[uint64]string{}, joined: 1}
	n.do(n.machine.Join(now, "i1", false))
	n.told = nil
	return n
}

// trainingNode returns n1 in the middle of the step after done, under plan 3.
func trainingNode(t *testing.T, done uint64, alter ...func(*Settings)) *node {
	n := newNode(t, alter...)
	n.commits(plan(3, 10, "n1", "n2"))
	n.stands(0)
	n.stands(done)
	n.told = nil
	return n
}

func members(names ...string) (list []events.Member) {
	for _, name := range names {
		list = append(list, events.Member{Node: name, Incarnation: "i1", Address: "a:" + name})
	}
	return list
}

// plan is one under which each of the nodes trains both layers.
func plan(generation, resume uint64, names ...string) events.Plan {
	plan := events.Plan{
		Cluster: "c", Generation: generation, ResumeStep: resume, Nodes: members(names...),
		Data: events.Data{GlobalBatch: len(names), MicroBatch: 1},
	}
	if generation > 1 {
		plan.Parent = events.Digest([]byte("unheard"))
	}
	for _, name := range names {
		plan.Pipelines = append(plan.Pipelines, events.Pipeline{
			MicroBatches: 1, Stages: []events.Stage{{Node: name, Layers: events.Range{End: 2}}},
		})
	}
	return plan
}

// giving has n2 give layers to n1.
func giving(plan events.Plan, layers ...int) events.Plan {
	plan.Migration.ShardBytes = 1
	for _, layer := range layers {
		plan.Migration.Transfers = append(plan.Migration.Transfers, events.Transfer{
			Unit: layer, To: "n1", Bytes: 4, Sources: []events.Source{{Node: "n2", Shards: events.Range{End: 4}}},
		})
	}
	return plan
}

func opening(id string, generation uint64, abandon bool, names ...string) *events.Opening {
	return &events.Opening{
		Negotiation: id, Generation: generation, Abandon: abandon, Members: members(names...),
		Changes: []events.Change{{Kind: events.ChangeFailure, Node: "n9", Cause: "x"}},
	}
}

// event says a fact in the negotiator's name.
func (n *node) event(kind events.Kind, payload events.Payload) events.Event {
	n.said++
	return events.Speaker{Source: "/negotiator", Cluster: "c"}.First(now, strconv.Itoa(n.said), kind, "x", payload)
}

func (n *node) hears(kind events.Kind, payload events.Payload) {
	n.t.Helper()
	actions, err := n.machine.Handle(n.event(kind, payload))
	if err != nil {
		n.t.Fatal(err)
	}
	n.do(actions)
}

// commits has the node hear a plan whose parent is the one before.
func (n *node) commits(plan events.Plan) {
	n.t.Helper()
	n.hears(events.PlanCommitted, n.chained(plan))
}

func (n *node) chained(plan events.Plan) *events.Plan {
	if parent, heard := n.plans[plan.Generation-1]; heard {
		plan.Parent = parent
	}
	n.plans[plan.Generation] = events.Digest(n.event(events.PlanCommitted, &plan).Data)
	return &plan
}

func (n *node) stands(done uint64) { n.t.Helper(); n.do(n.machine.Boundary(done)) }
func (n *node) ends(result Result) { n.t.Helper(); n.do(n.machine.Done(result)) }

// do tells the actions, and does what the trainer's state is asked for.
func (n *node) do(actions []Action) {
	n.t.Helper()
	for _, action := range actions {
		n.told = append(n.told, words(action))
		switch action := action.(type) {
		case Tell:
			if n.tasks = append(n.tasks, action); !n.slow {
				n.answer()
			}
		case Adopt:
			if n.tasks = append(n.tasks, action); !n.slow {
				n.answer()
			}
		case Rejoin:
			if n.looks {
				break
			}
			n.joined++
			n.do(n.machine.Join(now, "i"+strconv.Itoa(n.joined), n.taken))
		case Measure, Fetch, Export, PreCopy:
			n.tasks = append(n.tasks, action)
		}
	}
}

// answer ends the oldest task as it ends when all is well.
func (n *node) answer() {
	n.t.Helper()
	if len(n.tasks) == 0 {
		n.t.Fatal("no task is under way")
	}
	task := n.tasks[0]
	n.tasks = n.tasks[1:]
	switch task := task.(type) {
	case Tell:
		told := Told{Task: task.Task, Holdings: n.holds}
		if task.Claims {
			told.Claims = n.claims
		}
		if task.Snapshots {
			told.Snapshots = []events.Snapshot{{Step: 8, Plan: events.Digest(nil), Units: []events.Range{{End: 2}}}}
		}
		n.ends(told)
	case Adopt:
		n.ends(Adopted{task.Task})
	case Measure:
		result := Measured{Task: task.Task}
		for _, peer := range slices.Backward(task.Peers) {
			result.Measurements = append(result.Measurements, events.Measurement{
				From: "n1", To: peer.Node, RoundTripSeconds: 0.001, BandwidthBytesPerSecond: 1e9,
			})
		}
		n.ends(result)
	case Export:
		n.ends(Exported{Task: task.Task, Digest: events.Digest([]byte("unit")), Bytes: 4,
			Parts: []events.Part{{Digest: events.Digest([]byte("unit")), End: 4}}})
	case Fetch:
		n.ends(Fetched{Task: task.Task, Seconds: 2, Sources: []events.Received{{From: "n2", Bytes: 4}}})
	case PreCopy:
		n.ends(CaughtUp{Task: task.Task, Step: 12, Behind: 1, Bytes: 4, Seconds: 3})
	}
}

func (n *node) expect(lines ...string) {
	n.t.Helper()
	if !slices.Equal(n.told, lines) {
		n.t.Fatalf("it does\n\t%s\nexpected\n\t%s", strings.Join(n.told, "\n\t"), strings.Join(lines, "\n\t"))
	}
	n.told = nil
}

// words tells an action in a line.
func words(action Action) string {
	switch action := action.(type) {
	case Say:
		return "say " + spoken(action.Event)
	case Train:
		if action.Switched && action.Abandoned {
			return fmt.Sprintf("train under %d, new, after steps were given up", action.Plan.Generation)
		}
		if action.Switched {
			return fmt.Sprintf("train under %d, new", action.Plan.Generation)
		}
		return fmt.Sprintf("train under %d", action.Plan.Generation)
	case Measure:
		text := "measure"
		for _, peer := range action.Peers {
			text += " " + peer.Node
		}
		return text
	case Tell:
		text := "tell holdings"
		if action.Claims {
			text = "tell claims"
		}
		if action.Snapshots {
			text += " and snapshots"
		}
		return text
	case Capture:
		text := fmt.Sprintf("capture at %d:", action.Step)
		for _, share := range action.Shares {
			text += fmt.Sprintf(" %s %v", share.Tier, share.Units)
		}
		return text
	case Adopt:
		return fmt.Sprintf("adopt %v at %d", action.Units, action.Step)
	case PreCopy:
		return "precopy " + action.Exchange.Negotiation
	case Open:
		return "open " + action.Exchange.Negotiation
	case Close:
		return "close " + action.Negotiation
	case Export:
		text := fmt.Sprintf("export %d at %d", action.Unit, action.Step)
		if action.Snapshot != "" {
			text += " from a snapshot"
		}
		return text
	case Fetch:
		return fmt.Sprintf("fetch %d", action.Transfer.Unit)
	case End:
		return fmt.Sprintf("end left=%t %s", action.Left, action.Reason)
	case Waits:
		return strings.TrimSpace(fmt.Sprintf("waits since %s %s", action.Since.Format(time.TimeOnly), action.Reason))
	case Late:
		return fmt.Sprintf("late by %.0f s, alone with %v", action.Seconds, action.Alone)
	case Awaited:
		return fmt.Sprintf("awaited in step %d: %s", action.Step+1, action.Reason)
	case Leaving:
		return "leaving: " + action.Reason
	case Reread:
		return fmt.Sprintf("reread %d", action.Generation)
	}
	return strings.ToLower(strings.TrimPrefix(fmt.Sprintf("%T", action), "machine."))
}

// spoken tells what an event says: its kind and the fields that these tests are about.
func spoken(event events.Event) string {
	var fields struct {
		Negotiation, Incarnation, Reason string
		Givers, Tiers                    []string
		Node                             string
		Accepted                         bool
		StopStep                         *uint64
		Step                             *uint64
		Holdings, Claims, Units          []json.RawMessage
		Measurements, Snapshots          []json.RawMessage
		Trained                          json.RawMessage // of a join it is an object, of a consent a number
		Unit                             *int
	}
	if err := json.Unmarshal(event.Data, &fields); err != nil {
		return err.Error()
	}
	text := string(event.Kind)
	if fields.Negotiation != "" {
		text += " " + fields.Negotiation
	}
	if event.Kind == events.JoinRequested {
		text += " " + fields.Incarnation
	}
	if event.Kind == events.Consented {
		text += fmt.Sprintf(" %t at %d: %d holdings", fields.Accepted, *fields.Step, len(fields.Holdings))
		if fields.Claims != nil {
			text += fmt.Sprintf(", %d claims of plan %s", len(fields.Claims), fields.Trained)
		}
		if fields.Snapshots != nil {
			text += fmt.Sprintf(", %d snapshots", len(fields.Snapshots))
		}
		if fields.Measurements != nil {
			text += fmt.Sprintf(", %d links", len(fields.Measurements))
		}
		if fields.Tiers != nil {
			text += fmt.Sprintf(", writes %v", fields.Tiers)
		}
	}
	if fields.StopStep != nil {
		text += fmt.Sprintf(" %d", *fields.StopStep)
	}
	if event.Kind == events.ShardOffered {
		text += fmt.Sprintf(" %d", *fields.Unit)
	}
	if event.Kind == events.ShardReceived {
		text += fmt.Sprintf(" %d units", len(fields.Units))
	}
	if event.Kind == events.RestorationFailed && fields.Node == "" {
		text += " by nobody"
	}
	if len(fields.Givers) > 0 {
		text += fmt.Sprintf(" by itself or %v", fields.Givers)
	}
	if fields.Reason != "" {
		text += ": " + fields.Reason
	}
	return text
}
