package doctor

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/reknit/reknit/events"
	"github.com/reknit/reknit/services/reknit/tell"
)

// dialTimeout is how long a way between nodes may take: longer than any round trip, and no longer than a reader waits.
const dialTimeout = 3 * time.Second

// mostPeers bounds how many are dialled, or asked to dial.
const mostPeers = 16

// members are the nodes of the plan in force, but this one: some of them where there are many, and how many there are.
func (d *doctor) members(ctx context.Context) (members []events.Member, all int, err error) {
	last, found, err := d.bus.LastEvent(ctx, events.PlanStream, events.PlanSubject(d.bus.Cluster(), "*"))
	if err != nil || !found {
		return nil, 0, err
	}
	d.names.Take(last)
	plan, err := events.Open[events.Plan](last)
	members = slices.DeleteFunc(plan.Nodes, func(member events.Member) bool { return member.Node == d.node.Node })
	return members[:min(mostPeers, len(members))], len(members), err
}

// peers dials members of the plan, and asks each for a sign of life: the kernel takes connections in the name of a frozen process, too.
func (d *doctor) peers(ctx context.Context) []Finding {
	members, all, err := d.members(ctx)
	if err != nil {
		return found(wrong, "", "%v", err)
	}
	dialled := make([]error, len(members))
	var dials sync.WaitGroup
	for i, member := range members {
		dials.Go(func() { dialled[i] = dial(ctx, member.Address) })
	}
	signs := d.signs(members)
	dials.Wait()
	reached, answered := 0, 0
	var findings []Finding
	for i, member := range members {
		if dialled[i] == nil {
			reached++
		}
		if signs[member.Node] == lives {
			answered++
		}
		findings = append(findings, peer(member, dialled[i], signs[member.Node])...)
	}
	says := fmt.Sprintf("looked at %d of %s of the plan: %d reached from here", len(members), tell.Count(all, "other member", "other members"), reached)
	switch {
	case all == 0:
		says = "there is no other member of the plan"
	case d.kit.API != "":
		says += "; whether they answer at NATS only the monitor may ask: reknit nodes tells"
	default:
		says += fmt.Sprintf(", %d answered at NATS", answered)
	}
	return append(found(fine, "", "%s", says), findings...)
}

// peer says what is wrong with a member that was dialled, with this error, and asked for a sign of life.
func peer(member events.Member, dialled error, life life) []Finding {
	switch {
	case life == gone:
		return found(warning, "see reknit status: it says how the node ended, where that is known",
			"%s is not there: the process that the plan names does not answer at NATS", member.Node)
	case dialled != nil:
		return found(warning, "open the port, or have it advertise another address; till then its traffic is relayed",
			"%s cannot be reached: %v", member.Node, dialled)
	case life == mute:
		return found(warning, "look at its machine: let its processes go on (kill -CONT), or end them",
			"%s takes connections, and gave no sign of life at NATS in %v: its agent is frozen, or its machine has no time for it",
			member.Node, dialTimeout)
	}
	return nil
}

// life is what is known of a member's process.
type life int

const (
	lives life = iota // or nobody may ask
	mute              // it is there, and does not answer
	gone              // nobody answers for its node, or a process of another incarnation does
)

// signs asks members of the plan for a sign of life, all at once, and none a second time.
func (d *doctor) signs(members []events.Member) map[string]life {
	asked := make([]life, len(members))
	var asks sync.WaitGroup
	for i, member := range members {
		if _, known := d.lives[member.Node]; !known {
			asks.Go(func() { asked[i] = d.answers(member) })
		}
	}
	asks.Wait()
	for i, member := range members {
		if _, known := d.lives[member.Node]; !known {
			d.lives[member.Node] = asked[i]
		}
	}
	return d.lives
}

// answers asks a member's process for a sign of life. On a secured installation nobody but the monitor may ask.
func (d *doctor) answers(member events.Member) life {
	if d.kit.API != "" {
		return lives
	}
	reply, err := d.conn.Request(events.ProbeSubject(d.bus.Cluster(), member.Node), []byte("{}"), dialTimeout) // of no target
	switch {
	case errors.Is(err, nats.ErrNoResponders):
		return gone
	case err != nil:
		return mute
	}
	var answer events.ProbeAnswer
	if json.Unmarshal(reply.Data, &answer) == nil && answer.Incarnation != "" && answer.Incarnation != member.Incarnation {
		return gone
	}
	return lives
}

func dial(ctx context.Context, address string) error {
	conn, err := (&net.Dialer{Timeout: dialTimeout}).DialContext(ctx, "tcp", address)
	if err != nil {
		return err
	}
	return conn.Close()
}

// address has members of the plan dial where the agent of this machine listens, or is to listen. The doctor listens there if no agent does
// yet.
func (d *doctor) address(ctx context.Context) []Finding {
	if d.kit.API != "" {
		return found(unseen, "", "nobody but the monitor may have others dial a node: reknit links says what it found")
	}
	asked, _, err := d.members(ctx)
	signs := d.signs(asked)
	members := slices.DeleteFunc(asked, func(member events.Member) bool { return signs[member.Node] != lives })
	switch {
	case err != nil:
		return found(wrong, "", "%v", err)
	case len(members) == 0:
		return found(unseen, "", "no other node is there that could dial it")
	}
	listener, err := net.Listen("tcp", d.node.Listen)
	if err != nil && !errors.Is(err, syscall.EADDRINUSE) {
		return found(wrong, "set REKNIT_AGENT_LISTEN to an address of this machine", "%v", err)
	}
	address, reached := cmp.Or(d.node.Advertise, d.node.Listen), make(chan struct{}, mostPeers)
	if listener != nil {
		defer listener.Close()
		address = cmp.Or(d.node.Advertise, listener.Addr().String())
		go accept(listener, reached)
	}
	isNode := d.isNodeHere(listener != nil)
	var all []Finding
	answers := 0
	for _, member := range members[:min(3, len(members))] {
		why, answered := d.dialledBy(ctx, member.Node, address, reached)
		if answered {
			answers++
		}
		if why != "" {
			all = append(all, d.unreached(member.Node, address, why, isNode)...)
		}
	}
	switch {
	case answers == 0:
		return found(unseen, "", "none of the nodes that were asked to dial it answers")
	case len(all) == 0:
		return found(fine, "", "others reach this node at %s", address)
	}
	return all
}

// isNodeHere reports whether this machine is to be a node, as far as anything tells: an agent listens, or the environment is that of one.
func (d *doctor) isNodeHere(isFree bool) bool {
	return !isFree || os.Getenv("REKNIT_AGENT_NODE")+os.Getenv("REKNIT_AGENT_LISTEN")+os.Getenv("REKNIT_AGENT_ADVERTISE") != ""
}

// unreached says that a member does not reach this machine. Only a node is to be reached, not who looks on.
func (d *doctor) unreached(member, address, why string, isNode bool) []Finding {
	if !isNode {
		return found(warning, "nothing, unless this machine is to be a node: set REKNIT_AGENT_LISTEN and REKNIT_AGENT_ADVERTISE then",
			"%s would not reach a node here at %s: %s", member, address, why)
	}
	return found(wrong, "open the port, or set REKNIT_AGENT_LISTEN and REKNIT_AGENT_ADVERTISE to an address that others reach",
		"%s does not reach this node at %s: %s", member, address, why)
}

func accept(listener net.Listener, reached chan<- struct{}) {
	for {
		conn, err := listener.Accept()
		if err != nil {
			return
		}
		select {
		case reached <- struct{}{}: // before who dialled can tell of the end
		default: // one is as good as many
		}
		conn.Close()
	}
}

// dialledBy asks a node to measure its link to an address, and says why it does not come through; empty where it does, and
// where the node does not answer: it may be frozen.
func (d *doctor) dialledBy(ctx context.Context, node, address string, reached <-chan struct{}) (why string, answered bool) {
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	ask, err := json.Marshal(events.Probe{Target: cmp.Or(d.node.Node, "reknit-doctor"), Address: address})
	if err != nil {
		return err.Error(), true
	}
	message, err := d.conn.RequestWithContext(ctx, events.ProbeSubject(d.bus.Cluster(), node), ask)
	select {
	case <-reached: // whatever it makes of who answered there
		return "", true
	default:
	}
	if err != nil {
		return "", false
	}
	var answer events.ProbeAnswer
	switch err := json.Unmarshal(message.Data, &answer); {
	case err != nil:
		return err.Error(), true
	case answer.Measured != nil || answer.Finding == events.FoundStalled:
		return "", true
	}
	return cmp.Or(answer.Error, answer.Finding), true
}

// Least room on a disk that nothing is said about.
const (
	leastShare = 0.05
	leastBytes = 1 << 30
)

// disk looks at the directories that an agent writes to, and at NATS' store where that is here.
func (d *doctor) disk(context.Context) (all []Finding) {
	all = append(roomOf("REKNIT_AGENT_STATE_DIR", cmp.Or(d.node.StateDir, sharedMemory())),
		roomOf("REKNIT_AGENT_SHARD_DIR", cmp.Or(d.node.ShardDir, os.TempDir()))...)
	const usual = "reknit-data" // of reknit up
	if _, err := os.Stat(usual); d.store != "" || err == nil {
		all = append(all, roomOf("--store", cmp.Or(d.store, usual))...)
	}
	return all
}

// roomOf tells how much room a directory's disk has, by the setting that names it.
func roomOf(setting, path string) []Finding {
	free, whole, err := room(path)
	what := "NATS' store"
	if name, isOurs := strings.CutPrefix(setting, "REKNIT_AGENT_"); isOurs {
		what = strings.ToLower(name)
	}
	says := fmt.Sprintf("%s, of %s, has %s of %s left", path, what, tell.Bytes(free), tell.Bytes(whole))
	switch {
	case err != nil:
		return found(wrong, "make it, or set "+setting, "%s: %v", path, err)
	case scarce(free, whole):
		return found(warning, "make room, or set "+setting, "%s", says)
	}
	return found(fine, "", "%s", says)
}

// scarce reports whether so many free bytes are soon used up: a small disk fills by what is in it, a large one by its share.
func scarce(free, whole int64) bool {
	return float64(free) < leastShare*float64(whole) || free < leastBytes
}

// sharedMemory is where an agent keeps state unless told otherwise.
func sharedMemory() string {
	const memory = "/dev/shm"
	if _, err := os.Stat(memory); err == nil {
		return memory
	}
	return os.TempDir()
}
