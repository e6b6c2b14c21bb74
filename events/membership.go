package events

import "fmt"

// MostNodes bounds a cluster: of its nodes the negotiator keeps a state, and every opening and plan lists all. It is twice as many
// as were measured. A provisioned server takes more connections, so that whoever is refused can be told.
const MostNodes = 4096

// Join asks for a place in training. The same node with another incarnation is a restarted process: it holds
// nothing any more.
type Join struct {
	Node        string `json:"node" is:"token"`
	Incarnation string `json:"incarnation" is:"token"` // drawn anew at each start of the process
	Address     string `json:"address" is:"address"`   // host:port where other trainers reach its data plane
	// Name is what people call the node. Nobody proves it, and two nodes may claim one: it is shown, and nothing follows from it.
	Name string `json:"name,omitempty" is:"token"`
	// Site is where the node stands, as whoever runs it names the place: the nodes of a site share its way to the others.
	// Without a name nothing is known of that.
	Site string `json:"site,omitempty" is:"token"`
	// ShardAddress is host:port of the node's own shard store, a NATS server; without one its shards go through the hub's.
	ShardAddress string `json:"shardAddress,omitempty" is:"address"`
	PreCopies    bool   `json:"preCopies,omitempty"` // it can give and take layers while training goes on, as PreCopyRequest tells
	Snapshots    bool   `json:"snapshots,omitempty"` // it may read some, and says which when an opening asks
	// SnapshotFolder is where it writes snapshots on its own disk, in short. Left out: it writes none there.
	SnapshotFolder string `json:"snapshotFolder,omitempty" is:"reason"`
	MemoryBytes    int64  `json:"memoryBytes" is:"min=1"` // what training may use; 1 where no script runs, and the node only gives
	// StateCopies is how many copies of the units it trains the node keeps in memory beside them: versions to roll back to,
	// and snapshots, its own and a neighbour's. Plans leave room for them.
	StateCopies int   `json:"stateCopies,omitempty" is:"max=1000"`
	Samples     int64 `json:"samples,omitempty"` // of its local data, where the job's data is local
	// Neighbours are the nodes to which it wants a direct link, out of those that there are when it asks (Chaos, IV-A): its links to
	// the others are disconnected until link.connect-requested asks for one. Left out: it wants a link to each.
	Neighbours []string `json:"neighbours,omitempty" is:"count=0..64,each=token"`
	// Trained is what the node holds that was trained before it asked. Left out: nothing. A log that lacks that plan has lost it.
	Trained *Trained `json:"trained,omitempty"`
	// AgentSeconds is for how long the agent runs that starts the node's script, and starts it again where it fails. Left out: somebody
	// else starts it.
	AgentSeconds float64 `json:"agentSeconds,omitempty" is:"min=0,max=1e9"`

	Job Job `json:"job"` // what it came to train; must equal the cluster's
}

// Trained is how far a node had trained, and under which plan.
type Trained struct {
	Generation uint64 `json:"generation" is:"min=1,max=1e18"` // of the plan
	Plan       string `json:"plan,omitempty" is:"digest"`     // its digest; left out: the node has it no more
	Step       uint64 `json:"step,omitempty" is:"max=1e18"`   // completed steps
}

// Leave asks to go. Training must not need the node after the deadline.
type Leave struct {
	Node            string  `json:"node" is:"token"`
	Reason          string  `json:"reason" is:"reason"`
	DeadlineSeconds float64 `json:"deadlineSeconds" is:"min=0,max=1e18"` // zero: none
}

// JoinDelay says that a node is not asked to consent before a while has passed: it failed again and again, or the
// others are to train meanwhile. Its request stands.
type JoinDelay struct {
	Node        string  `json:"node" is:"token"`
	Incarnation string  `json:"incarnation" is:"token"`
	Seconds     float64 `json:"seconds" is:"min=0,max=1e9"` // from the time of this event on
	Reason      string  `json:"reason" is:"reason"`
}

// LeaveDelay says, as soon as the moves are planned, that they take longer than a leaver has.
type LeaveDelay struct {
	Node            string  `json:"node" is:"token"`
	Incarnation     string  `json:"incarnation" is:"token"`
	Seconds         float64 `json:"seconds" is:"min=0,max=1e30"`         // until the others could do without it, as predicted
	DeadlineSeconds float64 `json:"deadlineSeconds" is:"min=0,max=1e18"` // that it has left
	// Alone are the units that nobody else holds. The others take what else it holds from each other, and do not need it for that. The
	// leaver may go at its deadline if there are none, and nothing is lost.
	Alone  []Range `json:"alone" is:"count=0..4096,each=units"`
	Reason string  `json:"reason" is:"reason"`
}

// Refusal answers a request that cannot be granted, or ends a membership.
type Refusal struct {
	Node string `json:"node" is:"token"` // who asked
	// Refused is the kind of the change that is refused, or "membership" for a node that was given up.
	Refused     string `json:"refused" is:"one=membership|join|leave|failure|connect-link|disconnect-link|link-failure|link-return|broken-step"`
	Incarnation string `json:"incarnation,omitempty"` // of the node, where its membership ends or does not begin
	Reason      string `json:"reason" is:"reason"`
	// Astray tells that what the node holds is not what the other holders of its units hold: none of it may be claimed.
	Astray bool `json:"astray,omitempty"`
	// OtherJob tells that the node was to train another job than the cluster does: it is refused whenever it asks.
	OtherJob bool `json:"otherJob,omitempty"`
	// Complete tells that the cluster's job is done: nothing is left to train, and it is refused whenever it asks.
	Complete bool `json:"complete,omitempty"`
	// Stopped tells that training was stopped since the node's agent was started, or an earlier process of the node left what it holds:
	// this one ends well. A node that is started afterwards is taken.
	Stopped bool `json:"stopped,omitempty"`
}

// OtherSteps is how the reason of a refusal begins where a node's job is the cluster's, but for its number of steps.
const OtherSteps = `field "job.steps":`

// RefusedMembership is what a node is refused that was given up: it may ask to join again.
const RefusedMembership = "membership"

func (j *Join) Validate() error {
	c := within(j)
	c.nested("job", j.Job.rules())
	c.neighbours(j)
	c.rule("samples", j.Job.Data != LocalData || j.Samples >= 1, "samples", "at least 1", j.Samples)
	return c.err
}

// neighbours checks that they are others, each once.
func (c *check) neighbours(j *Join) {
	named := map[string]bool{j.Node: true}
	for i, neighbour := range j.Neighbours {
		c.rule("neighbours", !named[neighbour], fmt.Sprintf("neighbours[%d]", i), "other nodes, each once", neighbour)
		named[neighbour] = true
	}
}

func (l *Leave) Validate() error { return within(l).err }

func (j *JoinDelay) Validate() error { return within(j).err }

func (l *LeaveDelay) Validate() error {
	c := within(l)
	c.ranges("alone", l.Alone)
	return c.err
}

func (r *Refusal) Validate() error { return within(r).err }
