package events

import "fmt"

// Join asks for a place in training. The same node with another incarnation is a restarted process: it holds
// nothing any more.
type Join struct {
	Node        string `json:"node"`
	Incarnation string `json:"incarnation"` // drawn anew at each start of the process
	Address     string `json:"address"`     // host:port where other trainers reach its data plane
	// Name is what people call the node. Nobody proves it, and two nodes may claim one: it is shown, and nothing follows from it.
	Name string `json:"name,omitempty"`
	// Site is where the node stands, as whoever runs it names the place: the nodes of a site share its way to the others.
	// Without a name nothing is known of that.
	Site string `json:"site,omitempty"`
	// ShardAddress is host:port of the node's own shard store, a NATS server; without one its shards go through the hub's.
	ShardAddress string `json:"shardAddress,omitempty"`
	PreCopies    bool   `json:"preCopies,omitempty"` // it can give and take layers while training goes on, as PreCopyRequest tells
	Snapshots    bool   `json:"snapshots,omitempty"` // it may read some, and says which when an opening asks
	MemoryBytes  int64  `json:"memoryBytes"`         // what training may use
	// StateCopies is how many copies of the units it trains the node keeps in memory beside them: versions to roll back to,
	// and snapshots, its own and a neighbour's. Plans leave room for them.
	StateCopies int   `json:"stateCopies,omitempty"`
	Samples     int64 `json:"samples,omitempty"` // of its local data, where the job's data is local
	// Neighbours are the nodes to which it wants a direct link, out of those that there are when it asks (Chaos, IV-A): its links to
	// the others are disconnected until link.connect-requested asks for one. Left out: it wants a link to each.
	Neighbours []string `json:"neighbours,omitempty"`
	Job        Job      `json:"job"` // what it came to train; must equal the cluster's
}

// Leave asks to go. Training must not need the node after the deadline.
type Leave struct {
	Node            string  `json:"node"`
	Reason          string  `json:"reason"`
	DeadlineSeconds float64 `json:"deadlineSeconds"` // zero: none
}

// JoinDelay says that a node is not asked to consent before a while has passed: it failed again and again, or the
// others are to train meanwhile. Its request stands.
type JoinDelay struct {
	Node        string  `json:"node"`
	Incarnation string  `json:"incarnation"`
	Seconds     float64 `json:"seconds"` // from the time of this event on
	Reason      string  `json:"reason"`
}

// LeaveDelay says, as soon as the moves are planned, that they take longer than a leaver has.
type LeaveDelay struct {
	Node            string  `json:"node"`
	Incarnation     string  `json:"incarnation"`
	Seconds         float64 `json:"seconds"`         // until the others could do without it, as predicted
	DeadlineSeconds float64 `json:"deadlineSeconds"` // that it has left
	// Alone are the units that nobody else holds. The others take what else it holds from each other, and do not need it
	// for that. Where there are none, it may go at its deadline and nothing is lost.
	Alone  []Range `json:"alone"`
	Reason string  `json:"reason"`
}

// Refusal answers a request that cannot be granted, or ends a membership.
type Refusal struct {
	Node string `json:"node"` // who asked
	// What is refused: the kind of the change, or "membership" for a node that was given up.
	Refused     string `json:"refused"`
	Incarnation string `json:"incarnation,omitempty"` // of the node, where its membership ends or does not begin
	Reason      string `json:"reason"`
	// Astray tells that what the node holds is not what the other holders of its units hold: none of it may be claimed.
	Astray bool `json:"astray,omitempty"`
	// OtherJob tells that the node was to train another job than the cluster does: it is refused whenever it asks.
	OtherJob bool `json:"otherJob,omitempty"`
	// Complete tells that the cluster's job is done: nothing is left to train, and it is refused whenever it asks.
	Complete bool `json:"complete,omitempty"`
}

// RefusedMembership is what a node is refused that was given up: it may ask to join again.
const RefusedMembership = "membership"

func (j *Join) Validate() error {
	var c check
	c.token("node", j.Node)
	c.token("incarnation", j.Incarnation)
	c.that(j.Address != "" && len(j.Address) <= 256, "address", "host:port", j.Address)
	if j.Name != "" {
		c.token("name", j.Name)
	}
	if j.Site != "" {
		c.token("site", j.Site)
	}
	c.that(len(j.ShardAddress) <= 256, "shardAddress", "host:port", j.ShardAddress)
	c.atLeast("memoryBytes", j.MemoryBytes, 1)
	c.stateCopies(j.StateCopies)
	c.neighbours(j.Node, j.Neighbours)
	c.nested("job", j.Job.Validate())
	if j.Job.Data == LocalData {
		c.atLeast("samples", j.Samples, 1)
	}
	return c.err
}

// mostNeighbours is many times what a sparse overlay has.
const mostNeighbours = 64

// neighbours checks a list of other nodes, each once.
func (c *check) neighbours(node string, neighbours []string) {
	c.atMost("neighbours", len(neighbours), mostNeighbours)
	named := map[string]bool{node: true}
	c.each(len(neighbours), "neighbours", func(i int) error {
		var c check
		c.token("", neighbours[i])
		c.that(!named[neighbours[i]], "", "other nodes, each once", neighbours[i])
		named[neighbours[i]] = true
		return c.err
	})
}

// mostStateCopies is more than anybody needs.
const mostStateCopies = 1000

func (c *check) stateCopies(copies int) {
	c.that(copies >= 0 && copies <= mostStateCopies, "stateCopies", fmt.Sprintf("0 to %d", mostStateCopies), copies)
}

func (l *Leave) Validate() error {
	var c check
	c.token("node", l.Node)
	c.reason(l.Reason)
	c.amount("deadlineSeconds", l.DeadlineSeconds)
	return c.err
}

func (j *JoinDelay) Validate() error {
	var c check
	c.token("node", j.Node)
	c.token("incarnation", j.Incarnation)
	c.amount("seconds", j.Seconds)
	c.reason(j.Reason)
	return c.err
}

func (l *LeaveDelay) Validate() error {
	var c check
	c.token("node", l.Node)
	c.token("incarnation", l.Incarnation)
	c.amount("seconds", l.Seconds)
	c.amount("deadlineSeconds", l.DeadlineSeconds)
	c.that(len(l.Alone) <= MostUnits, "alone", fmt.Sprintf("at most %d ranges", MostUnits), len(l.Alone))
	c.each(len(l.Alone), "alone", func(i int) error {
		var c check
		c.units(l.Alone[i])
		return c.err
	})
	c.reason(l.Reason)
	return c.err
}

func (r *Refusal) Validate() error {
	var c check
	c.token("node", r.Node)
	c.that(r.Refused == RefusedMembership || changeKinds[r.Refused], "refused", "membership or a kind of change",
		r.Refused)
	c.reason(r.Reason)
	return c.err
}
