package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/reknit/reknit/events"
	"github.com/reknit/reknit/services/negotiator/merit"
	"github.com/reknit/reknit/services/reknit/processes"
	"github.com/reknit/reknit/tests/invariants"
	"github.com/reknit/reknit/tests/observer"
)

// drill is a failure, and what must have come of it in the end, besides that all train again with the right digests.
type drill struct {
	name      string
	trainers  int
	pipelines int
	stages    int
	delays    map[string]time.Duration // by trainer: of what it says to NATS
	restarts  bool                     // whoever is killed is started again
	snapshots bool                     // trainers write some to a folder that all read
	inMemory  bool                     // they keep them in their own memory and in a neighbour's
	storeDies int                      // they write them to an S3 server that dies when so many objects were put; zero: none
	strike    func(context.Context, *cluster) error
	members   int                        // nodes of the plan in the end
	spared    bool                       // training goes on under the plan before
	backOff   float64                    // seconds for which the negotiator has a node wait besides
	shown     func(observer.Scene) error // what the log must show besides; nil: nothing
	violates  string                     // the invariant that the failure itself breaks
}

// drills lists them in the order of issue 11.
var drills = []drill{
	{
		name: "holders-cut-7s", trainers: 6, pipelines: 2, stages: 3, strike: cutHolders(7 * time.Second), members: 6,
		spared: true, shown: nobodyLost,
	},
	{name: "holders-cut-90s", trainers: 6, pipelines: 2, stages: 3, strike: cutHolders(90 * time.Second), members: 6},
	{
		name: "nats-away-5s", trainers: 4, pipelines: 2, stages: 2, delays: farAway,
		strike: joinWithoutNATS(5300 * time.Millisecond), members: 5, shown: nobodyLost,
	},
	{
		name: "nats-away-30s", trainers: 4, pipelines: 2, stages: 2, delays: farAway,
		strike: joinWithoutNATS(30 * time.Second), members: 5, shown: nobodyLost,
	},
	{
		name: "float-spoiled", trainers: 3, pipelines: 3, stages: 1,
		strike: spoilFloat, members: 3, shown: onceDiverged, violates: invariants.OneDigest.Says,
	},
	{name: "crash-loop", trainers: 4, pipelines: 2, stages: 2, strike: crashLoop(5, 3*time.Second), members: 5},
	{
		name: "crash-loop-15", trainers: 4, pipelines: 2, stages: 2, strike: crashLoop(15, time.Second), members: 5,
		backOff: merit.Wait(15),
	},
	{
		name: "holders-killed", trainers: 6, stages: 3, snapshots: true,
		strike: killHolders, members: 4, shown: wentBack,
	},
	{
		name: "holders-killed-memory", trainers: 6, stages: 3, inMemory: true,
		strike: killHolders, members: 4, shown: wentBack,
	},
	{
		name: "all-killed", trainers: 4, pipelines: 2, stages: 2, restarts: true, snapshots: true,
		strike: killAll, members: 4, shown: wentBack,
	},
	{
		name: "store-killed", trainers: 4, pipelines: 2, stages: 2, restarts: true, snapshots: true, storeDies: 25,
		strike: killAllAfterStore, members: 4, shown: wentBackOnce,
	},
	{name: "store-wiped", trainers: 4, pipelines: 2, stages: 2, strike: wipeStore, members: 5},
	{
		name: "store-restored", trainers: 4, pipelines: 2, stages: 2, strike: restoreStore, members: 5, shown: heldForIt,
		violates: invariants.Ended.Says, // nobody closes what was open in the log that is gone
	},
	{name: "two-killed", trainers: 6, pipelines: 3, stages: 2, strike: killTwo, members: 4},
}

// farAway has the consents of two trainers come later than the moment at which NATS goes away, and those of the others
// before.
var farAway = map[string]time.Duration{"n2": 150 * time.Millisecond, "n4": 150 * time.Millisecond}

// opened is for how long a negotiation has been open when NATS goes away.
const opened = 60 * time.Millisecond

// cutHolders takes NATS away from both holders of a layer.
func cutHolders(away time.Duration) func(context.Context, *cluster) error {
	return func(ctx context.Context, c *cluster) error {
		pipelines := c.observer.Scene().Plan.Pipelines
		return c.cut(ctx, away, pipelines[0].Stages[1].Node, pipelines[1].Stages[1].Node)
	}
}

// joinWithoutNATS takes NATS away from everybody while a fifth node joins.
func joinWithoutNATS(away time.Duration) func(context.Context, *cluster) error {
	return func(ctx context.Context, c *cluster) error {
		before := c.observer.Scene().Heard[events.NegotiationOpened]
		if err := c.join("n5", false); err != nil {
			return err
		}
		if err := c.observer.Wait(ctx, waitLimit, "a negotiation about the fifth node", func(s observer.Scene) bool {
			return s.Heard[events.NegotiationOpened] > before
		}); err != nil {
			return err
		}
		if err := pause(ctx, opened); err != nil {
			return err
		}
		return c.stopNATS(ctx, away)
	}
}

func nobodyLost(s observer.Scene) error {
	if lost, held := s.Heard[events.NodeLost], s.Heard[events.ClusterHeld]; lost+held > 0 {
		return fmt.Errorf("%d nodes lost and %d holds: expected none, for no node failed", lost, held)
	}
	return nil
}

// spoilFloat spoils one of three replicas.
func spoilFloat(_ context.Context, c *cluster) error {
	config, err := c.trainer()
	if err != nil {
		return err
	}
	vector, err := unread(config)
	if err != nil {
		return err
	}
	pid, err := c.processes.Pid("n1")
	if err != nil {
		return err
	}
	return spoil(pid, vector)
}

func onceDiverged(s observer.Scene) error {
	if count := s.Heard[events.ReplicaDiverged]; count != 1 {
		return fmt.Errorf("replicas diverged %d times: expected once, for one float was spoiled", count)
	}
	return nil
}

// crashLoop has a node that joins die again and again, and then leaves it alone.
func crashLoop(crashes int, every time.Duration) func(context.Context, *cluster) error {
	return func(ctx context.Context, c *cluster) error {
		before := c.observer.Scene().Steps
		if err := c.join("n5", true); err != nil {
			return err
		}
		for range crashes {
			if err := pause(ctx, every); err != nil {
				return err
			}
			if err := c.processes.Kill("n5"); err != nil {
				return err
			}
		}
		if c.observer.Scene().Steps == before {
			return errors.New("nobody trained while a node that was to join crashed again and again")
		}
		return nil
	}
}

// killHolders kills both holders of a layer at once.
func killHolders(_ context.Context, c *cluster) error {
	pipelines := c.observer.Scene().Plan.Pipelines
	return errors.Join(
		c.processes.Kill(pipelines[0].Stages[1].Node),
		c.processes.Kill(pipelines[1].Stages[1].Node),
	)
}

// killAll kills all who train.
func killAll(_ context.Context, c *cluster) error {
	var failed error
	for _, node := range c.observer.Scene().Plan.Nodes {
		failed = errors.Join(failed, c.processes.Kill(node.Node))
	}
	return failed
}

// killAllAfterStore waits until the store has died in the middle of a snapshot, starts it again and kills all who train:
// they go on from what it had acknowledged.
func killAllAfterStore(ctx context.Context, c *cluster) error {
	select {
	case <-c.snapshots.ended:
	case <-time.After(waitLimit):
		return fmt.Errorf("expected the store to die within %v", waitLimit)
	}
	return errors.Join(c.snapshots.start(0), killAll(ctx, c))
}

// wentBackOnce expects that training went back; how far depends on how long the store was away.
func wentBackOnce(s observer.Scene) error {
	if len(s.WentBack) != 1 {
		return fmt.Errorf("training went back by %v steps: expected once", s.WentBack)
	}
	return nil
}

// wentBack expects that training once went back, not further than by a snapshot and one that was still being written.
func wentBack(s observer.Scene) error {
	if len(s.WentBack) != 1 || s.WentBack[0] >= 2*snapshotEvery {
		return fmt.Errorf("training went back by %v steps: expected once, by fewer than %d", s.WentBack, 2*snapshotEvery)
	}
	return nil
}

// wipeStore takes the server away and brings it back with an empty store, to which a new node comes first.
func wipeStore(ctx context.Context, c *cluster) error {
	if err := c.withoutNATS(os.RemoveAll); err != nil {
		return err
	}
	return c.join("n5", false)
}

// restoreStore brings the server back with a store from before a node joined, and has a user accept that once the cluster holds for it.
func restoreStore(ctx context.Context, c *cluster) error {
	if err := c.withoutNATS(c.backUp); err != nil {
		return err
	}
	if err := c.join("n5", false); err != nil {
		return err
	}
	if err := c.observer.Wait(ctx, waitLimit, "a plan with the fifth node", func(s observer.Scene) bool {
		return len(s.Plan.Nodes) == 5 && s.Trains()
	}); err != nil {
		return err
	}
	if err := c.restore(ctx); err != nil {
		return err
	}
	if err := c.observer.Wait(ctx, waitLimit, "the word that the log is an older one", func(s observer.Scene) bool {
		return strings.HasPrefix(s.Held, events.OlderLog)
	}); err != nil {
		return err
	}
	user := events.Speaker{Source: "/user", Cluster: clusterID}
	_, err := c.bus.Publish(ctx, user.First(time.Now(), "drill", events.LogAccepted, clusterID, &events.Acceptance{Reason: "a drill"}))
	return err
}

// heldForIt expects that the cluster held, and that each service was started once more, for the log.
func heldForIt(s observer.Scene) error {
	if held := s.Heard[events.ClusterHeld]; held == 0 {
		return errors.New("the cluster never held: expected it to, for an older log")
	}
	if started := s.Heard[events.LeaseTaken]; started > 2*len(processes.Services) {
		return fmt.Errorf("services were started %d times: expected each once, and once more", started)
	}
	return nil
}

// killTwo kills two trainers of different stages within a step.
func killTwo(_ context.Context, c *cluster) error {
	pipelines := c.observer.Scene().Plan.Pipelines
	return errors.Join(
		c.processes.Kill(pipelines[0].Stages[0].Node),
		c.processes.Kill(pipelines[1].Stages[1].Node),
	)
}
