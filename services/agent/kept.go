package agent

import (
	"context"
	"encoding/base64"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"github.com/nats-io/nkeys"

	"github.com/reknit/reknit/events"
	"github.com/reknit/reknit/services/agent/snapshots"
	"github.com/reknit/reknit/shared/bus"
)

// A snapshot counts, on a secured installation, if each of its parts is signed by a node that held these units under that plan. Its bytes
// are those that the manifest has the digests of.

const (
	mostParents = 64 // plans before the newest that are looked at for that of a snapshot
	reignTime   = 10 * time.Second
)

// proves gives the owner of snapshots what it takes to sign manifests with the key of the node's kit, and to believe others'.
func (s *Session) proves(owner snapshots.Owner) (snapshots.Owner, error) {
	if !s.bus.Secured() {
		return owner, nil
	}
	text, err := os.ReadFile(filepath.Join(s.config.NATSKit, bus.CredentialsFile))
	if err != nil {
		return owner, fmt.Errorf("REKNIT_NATS_KIT: %w", err)
	}
	key, err := nkeys.ParseDecoratedUserNKey(text)
	if err != nil {
		return owner, fmt.Errorf("REKNIT_NATS_KIT: %w", err)
	}
	owner.Sign = func(text []byte) string {
		signature, err := key.Sign(manifestOf(text))
		if err != nil {
			slog.Warn("a manifest is not signed", "node", s.config.Node, "error", err)
		}
		return base64.RawURLEncoding.EncodeToString(signature)
	}
	owner.Verify = s.verifyPart
	return owner, nil
}

// manifestOf is what is signed of a manifest, which is nothing that is signed of an event.
func manifestOf(text []byte) []byte { return append([]byte("reknit snapshot\n"), text...) }

// isSigned reports why a manifest is not believed to be a node's, whose id is its key.
func isSigned(node string, text []byte, written string) error {
	key, err := nkeys.FromPublicKey(node)
	if err != nil {
		return fmt.Errorf("node: expected a public key, got %.100q: %w", node, err)
	}
	signature, err := base64.RawURLEncoding.DecodeString(written)
	if err == nil {
		err = key.Verify(manifestOf(text), signature)
	}
	if err != nil {
		return fmt.Errorf("signature: expected that of %s: %w", node, err)
	}
	return nil
}

// verifyPart reports why a part of a snapshot does not count. A plan that the log has lost proves nothing: of its parts those count that
// this node wrote, or a node that takes part in the negotiation under way.
func (s *Session) verifyPart(ctx context.Context, written snapshots.Manifest, text []byte) error {
	if err := isSigned(written.Node, text, written.Signature); err != nil {
		return err
	}
	var units []int
	for _, unit := range written.Units {
		units = append(units, unit.Unit)
	}
	known, err := s.checkHeld(ctx, written.Node, written.Plan, written.Step, units)
	if err != nil || known || written.Node == s.config.Node {
		return err
	}
	s.mutex.Lock()
	defer s.mutex.Unlock()
	if !s.machine.TakesPart(written.Node) {
		return fmt.Errorf("plan: expected one that the log has, or a writer who takes part, got %s of %s", written.Plan, written.Node)
	}
	return nil
}

// checkLent reports why a part of a snapshot that a neighbour lends is not kept.
func (s *Session) checkLent(ctx context.Context, lent events.Keeping) error {
	if !s.bus.Secured() {
		return nil
	}
	var units []int
	for _, unit := range lent.Units {
		units = append(units, unit.Unit)
	}
	known, err := s.checkHeld(ctx, lent.Node, lent.Plan, lent.Step, units)
	switch {
	case err != nil:
		return err
	case !known:
		return fmt.Errorf("plan: expected one that the log has, got %s", lent.Plan)
	}
	s.mutex.Lock()
	defer s.mutex.Unlock()
	return s.machine.CheckStep(lent.Step)
}

// reign is a plan that was in force, as the log tells.
type reign struct {
	plan *events.Plan
	last uint64 // the step with which the next plan took over; zero: none has, or it went back
}

// checkHeld reports whether the log has a plan, and why a node did not hold units under it after so many steps: nobody trained a step
// beyond where the next plan took over. Bytes are nobody's word: their digests are what the writer signed.
func (s *Session) checkHeld(ctx context.Context, node, digest string, step uint64, units []int) (known bool, err error) {
	s.mutex.Lock()
	then, known := s.reigns[digest]
	s.mutex.Unlock()
	if !known {
		if then, err = s.reignOf(ctx, digest); err != nil || then.plan == nil {
			return false, err
		}
		s.remember(digest, then)
	}
	return true, then.check(node, step, units)
}

// remember keeps a plan whose last step is known: the log has yet to tell where one in force ends.
func (s *Session) remember(digest string, then reign) {
	if then.last == 0 {
		return
	}
	s.mutex.Lock()
	defer s.mutex.Unlock()
	if len(s.reigns) >= mostParents {
		clear(s.reigns)
	}
	s.reigns[digest] = then
}

// check reports why a node did not hold units under the plan after so many steps.
func (r reign) check(node string, step uint64, units []int) error {
	held := r.plan.UnitsOf(node)
	for _, unit := range units {
		if !slices.ContainsFunc(held, func(r events.Range) bool { return r.First <= unit && unit < r.End }) {
			return fmt.Errorf("unit: expected one that %s held under generation %d, got %d", node, r.plan.Generation, unit)
		}
	}
	if step < r.plan.ResumeStep || r.last > 0 && step > r.last {
		return fmt.Errorf("step: expected one that was trained under generation %d, from step %d on, got %d",
			r.plan.Generation, r.plan.ResumeStep, step)
	}
	return nil
}

// reignOf looks for a plan in the log, from the newest back; its plan is nil where there is none.
func (s *Session) reignOf(ctx context.Context, digest string) (then reign, err error) {
	ctx, cancel := context.WithTimeout(ctx, reignTime)
	defer cancel()
	last, subject := uint64(0), "*"
	for range mostParents {
		event, found, err := s.bus.LastEvent(ctx, events.PlanStream, events.PlanSubject(s.config.Cluster, subject))
		if err != nil {
			return reign{}, fmt.Errorf("%w: %w", snapshots.ErrUndecided, err)
		}
		if !found {
			break
		}
		plan, err := events.Open[events.Plan](event)
		if err != nil {
			return reign{}, err
		}
		if event.Digest() == digest {
			if last <= plan.ResumeStep {
				last = 0
			}
			return reign{&plan, last}, nil
		}
		last, subject = plan.ResumeStep, strconv.FormatUint(plan.Generation-1, 10)
	}
	return reign{}, nil
}
