package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/reknit/reknit/services/agent/shards"
	"github.com/reknit/reknit/tests/nodes"
)

// undisturbedFor is how long the trainers train alone before, to know how long their steps take here.
const undisturbedFor = 3 * time.Second

// ourPassages is how often the policy that is judged is played, without keys and with them in turns: of passages of a second one
// ends a tenth later than the next.
const ourPassages = 5

// play lets a node fetch a state by every policy.
func play(ctx context.Context, s scenario, bytes int64) (result outcome, err error) {
	result = outcome{scenario: s, Bytes: bytes}
	c, err := build(s)
	defer func() { err = errors.Join(err, c.end()) }()
	if err != nil {
		return result, fmt.Errorf("build the cluster: %w", err)
	}
	defer context.AfterFunc(ctx, c.stop)()
	parts, err := c.hold(nodes.State{Seed: s.Seed, Bytes: bytes, PartBytes: partBytes})
	if err != nil {
		return result, fmt.Errorf("store the state: %w", err)
	}
	undisturbed, err := c.train(func() error {
		select {
		case <-time.After(undisturbedFor):
		case <-ctx.Done():
		}
		return ctx.Err()
	})
	if err != nil {
		return result, err
	}
	policies, err := c.policies(s, parts)
	if err != nil {
		return result, err
	}
	if _, err := c.pass(policies[len(policies)-1], undisturbed); err != nil {
		return result, fmt.Errorf("unmeasured: %w", err)
	}
	passages, err := c.medians(policies[:4], undisturbed, ourPassages)
	if err != nil {
		return result, err
	}
	result.Policies, result.Secured = slices.Concat(passages[:1], passages[2:]), passages[1]
	for _, policy := range policies[4:] {
		passage, err := c.pass(policy, undisturbed)
		if err != nil {
			return result, fmt.Errorf("%s: %w", policy.name, err)
		}
		result.Policies = append(result.Policies, passage)
	}
	return result, nil
}

// medians are the middle ones of so many passages of each policy. The policies take turns, so that what the machine does beside
// meets all.
func (c *cluster) medians(policies []policy, undisturbed []Trained, turns int) ([]passage, error) {
	passed := make([][]passage, len(policies))
	for range turns {
		for i, policy := range policies {
			passage, err := c.pass(policy, undisturbed)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", policy.name, err)
			}
			passed[i] = append(passed[i], passage)
		}
	}
	medians := make([]passage, len(policies))
	for i := range passed {
		slices.SortFunc(passed[i], func(a, b passage) int { return cmp.Compare(a.Seconds, b.Seconds) })
		medians[i] = passed[i][turns/2]
	}
	return medians, nil
}

// pass brings the state to the joiner by a policy, while the others train. It tells the time at once: a state of gigabytes takes minutes,
// and a later policy may not fit in the memory of this machine.
func (c *cluster) pass(policy policy, undisturbed []Trained) (passage, error) {
	result := passage{Policy: policy.name}
	disturbed, err := c.train(func() error {
		before := processorTime()
		for _, leg := range policy.legs {
			var fetched Fetched
			if err := leg.to.Call("Node.Fetch", leg.job, &fetched); err != nil {
				return err
			}
			result.Seconds += fetched.Seconds
			result.Twice += fetched.Twice
		}
		result.Busy = processorTime().busySince(before)
		return nil
	})
	if err != nil {
		return result, err
	}
	result.IdleSeconds = idle(undisturbed, disturbed)
	fmt.Printf("  %-22s %6.2f s\n", policy.name, result.Seconds)
	return result, nil
}

// policy is how the state gets to the joiner: one leg, or two.
type policy struct {
	name string
	legs []leg
}

type leg struct {
	to  *nodes.Process
	job Job
}

func (c *cluster) policies(s scenario, parts []shards.Part) ([]policy, error) {
	joining := func(pulls []pull) leg { return leg{c.joiner, Job{Parts: parts, Pulls: pulls}} }
	write := leg{c.store, Job{Parts: parts, Pulls: together([]source{c.written}, len(parts)), Keep: true}}
	shares, err := s.shares(c.direct, len(parts))
	if err != nil {
		return nil, err
	}
	secured := slices.Clone(c.direct)
	for i := range secured {
		secured[i].Secured = true
	}
	pours := s.pours(c.direct, parts[len(parts)-1].End)
	securedShares, err := s.shares(secured, len(parts))
	return []policy{
		{policyOurs, []leg{joining(planned(shares, c.direct))}},
		{policySecured, []leg{joining(planned(securedShares, secured))}},
		{policyPlain, []leg{{c.joiner, Job{Plain: pours}}}},
		{policyHashed, []leg{{c.joiner, Job{Plain: pours, Hash: true}}}},
		{policySingle, []leg{joining(together(c.direct[s.fastest():s.fastest()+1], len(parts)))}},
		{policyEven, []leg{joining(even(c.direct, len(parts)))}},
		{policyRelays, []leg{joining(even(c.relayed, len(parts)))}},
		{policyCheckpoint, []leg{write, joining(together([]source{c.stored}, len(parts)))}},
		{policyShares, []leg{joining(shares)}},
		{policySoonest, []leg{joining(together(c.direct, len(parts)))}},
	}, err
}

// hold has every neighbour store the state.
func (c *cluster) hold(state nodes.State) ([]shards.Part, error) {
	parts := make([][]shards.Part, len(c.neighbours))
	var holds errgroup.Group
	for i, neighbour := range c.neighbours {
		holds.Go(func() error { return neighbour.Call("Node.Hold", state, &parts[i]) })
	}
	err := holds.Wait()
	return parts[0], err
}

// train has every neighbour train while a function runs.
func (c *cluster) train(meanwhile func() error) ([]Trained, error) {
	trained := make([]Trained, len(c.neighbours))
	for _, neighbour := range c.neighbours {
		if err := neighbour.Call("Node.Train", struct{}{}, nil); err != nil {
			return nil, err
		}
	}
	if err := meanwhile(); err != nil {
		return nil, err
	}
	for i, neighbour := range c.neighbours {
		if err := neighbour.Call("Node.Rest", struct{}{}, &trained[i]); err != nil {
			return nil, err
		}
	}
	return trained, nil
}
