package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"syscall"

	"github.com/reknit/reknit/events"
)

// story is a cluster and what happens to it, a row a path.
type story struct {
	name  string
	torch bool
	run   func(context.Context, *scene) error
}

var stories = []story{
	{name: "reference trainers", run: reference},
	{name: "relay", run: relay},
	{name: "kept snapshots", run: keptSnapshots},
	{name: "claims", run: claims},
	{name: "PyTorch data-parallel", torch: true, run: dataParallel},
	{name: "PyTorch pipeline", torch: true, run: pipeline},
}

// play tells where the processes logged if the story fails.
func (t story) play(ctx context.Context, s *scene) error {
	err := t.run(ctx, s)
	s.close()
	if err != nil {
		return fmt.Errorf("%w (logs in %s)", err, s.directory)
	}
	return os.RemoveAll(s.directory)
}

// settingsOf is a model whose layers are of some hundred kilobytes, so that no event is as long as a part of one.
func settingsOf(text string) map[string]string {
	return map[string]string{
		"REKNIT_TRAINER_TEXT": text, "REKNIT_TRAINER_STEPS": "1000000",
		"REKNIT_TRAINER_WIDTH": "64", "REKNIT_TRAINER_HIDDEN": "512", "REKNIT_TRAINER_BLOCKS": "4",
		"REKNIT_TRAINER_GLOBAL_BATCH": "6", "REKNIT_TRAINER_PIPELINES": "2",
		"REKNIT_TRAINER_LEAST_STAGES": "1", "REKNIT_TRAINER_MOST_STAGES": "3",
	}
}

// reference plays kill, join with its pre-copy, and leave.
func reference(ctx context.Context, s *scene) error {
	s.settings = settingsOf(s.text)
	if err := s.begin(ctx, 4); err != nil {
		return err
	}
	killed := s.row(ctx, "kill", 3, func() error { return s.kill("n4") })
	changing, done := context.WithCancel(ctx)
	defer done()
	since, read := s.mark(), make(chan error, 1)
	go func() { read <- s.readAnOffer(changing, since) }()
	moved := errors.Join(s.joinRow(ctx), s.row(ctx, "leave", 3, func() error { return s.processes.Signal("n3", syscall.SIGTERM) }))
	done()
	return errors.Join(killed, moved, <-read)
}

// begin starts NATS, the services and so many trainers, and waits until all train.
func (s *scene) begin(ctx context.Context, nodes int) error {
	if err := s.open(ctx, nodes); err != nil {
		return err
	}
	for i := range nodes {
		if err := s.trainer(fmt.Sprint("n", i+1)); err != nil {
			return err
		}
	}
	return s.trains(ctx, nodes, 0)
}

// row has something happen, waits until so many nodes train, and judges what moved.
func (s *scene) row(ctx context.Context, name string, nodes int, happens func() error) error {
	since, generation := s.mark(), s.generation()
	if err := happens(); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	if err := s.trains(ctx, nodes, generation); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return s.judge(ctx, name, since)
}

// joinRow has a row for what was pre-copied, too.
func (s *scene) joinRow(ctx context.Context) error {
	since := s.mark()
	if err := s.row(ctx, "join", 4, func() error { return s.trainer("n5") }); err != nil {
		return err
	}
	bytes := s.preCopied(since)
	if bytes == 0 {
		return errors.New("pre-copy: nothing was pre-copied by who joined")
	}
	fmt.Printf("%-8s %-22s %8d B came while training went on, in the row of the join\n", "passed", "pre-copy", bytes)
	return nil
}

// readAnOffer waits for a node to offer something, and reads it with the client library. If the change is over before it has read,
// as it may be on a busy machine, it waits for the next offer, until there are no more changes.
func (s *scene) readAnOffer(ctx context.Context, since mark) (err error) {
	for {
		var offer events.Offer
		var address string
		if ended := s.await(ctx, "an offer", func() bool {
			offer, address = s.offered(since)
			return address != ""
		}); ended != nil {
			return errors.Join(err, ended)
		}
		since = s.mark()
		if err = readByLibrary(ctx, s.storeFolder(offer.Node), address, offer); err == nil {
			fmt.Printf("%-8s %-22s lists the bucket of %s and reads a part while it gives\n", "passed", "client library", offer.Node)
			return nil
		}
		err = fmt.Errorf("the client library: %w", err)
	}
}

// relay has a node join whose givers' stores cannot be dialled, though their data planes can: another address leads to these alone.
func relay(ctx context.Context, s *scene) error {
	s.settings = settingsOf(s.text)
	if err := s.open(ctx, 2); err != nil {
		return err
	}
	for _, node := range []string{"n1", "n2"} {
		plane, err := forward(ctx)
		if err != nil {
			return err
		}
		s.behind[node] = true
		if err := s.trainerWith(node, map[string]string{
			"REKNIT_TRAINER_LISTEN": plane.listen, "REKNIT_TRAINER_ADVERTISE": plane.advertise,
		}); err != nil {
			return err
		}
	}
	if err := s.trains(ctx, 2, 0); err != nil {
		return err
	}
	if err := s.row(ctx, "relay through the hub", 3, func() error { return s.trainer("n3") }); err != nil {
		return err
	}
	if s.tap.so().hub == 0 {
		return errors.New("relay through the hub: nothing was read from the hub")
	}
	return nil
}

// keptSnapshots has each node keep its neighbour's part of snapshots.
func keptSnapshots(ctx context.Context, s *scene) error {
	s.settings = settingsOf(s.text)
	s.settings["REKNIT_SNAPSHOT_MEMORY_EVERY"] = "20"
	if err := s.begin(ctx, 2); err != nil {
		return err
	}
	since := s.mark()
	var so sum
	err := s.await(ctx, "parts of snapshots", func() bool {
		so = s.tap.so().less(since.sum)
		return so.keeping > 0 && so.ofStores >= so.keeping
	})
	if err == nil && (so.core > 0 || so.corrupt > 0 || float64(so.again) > mostAgain*float64(so.store)) {
		err = fmt.Errorf("%+v: expected all from stores, once", so)
	}
	if err == nil {
		fmt.Printf("%-8s %-22s neighbours were asked to keep %d B; read %d B of stores; core NATS %d B; %d parts verified\n",
			"passed", "kept snapshots", so.keeping, so.store, so.core, so.verified)
	}
	return err
}

// claims has every node be given up though it lives: of what they claim goes to one that joined meanwhile.
func claims(ctx context.Context, s *scene) error {
	s.settings = settingsOf(s.text)
	nodes := []string{"n1", "n2", "n3"}
	if err := s.begin(ctx, len(nodes)); err != nil {
		return err
	}
	return s.row(ctx, "claim", len(nodes)+1, func() error {
		if err := s.signal(syscall.SIGSTOP, nodes); err != nil {
			return err
		}
		if err := s.await(ctx, "all given up", func() bool { return s.lost["n1"] && s.lost["n2"] && s.lost["n3"] }); err != nil {
			return err
		}
		return errors.Join(s.trainer("n4"), s.signal(syscall.SIGCONT, nodes))
	})
}

func (s *scene) signal(signal syscall.Signal, nodes []string) error {
	for _, node := range nodes {
		if err := s.processes.Signal(node, signal); err != nil {
			return err
		}
	}
	return nil
}

func dataParallel(ctx context.Context, s *scene) error {
	if err := s.scripts(ctx, "elastic.py", 2); err != nil {
		return err
	}
	return s.row(ctx, "PyTorch data-parallel", 3, func() error { return s.script("n3", "elastic.py") })
}

// pipeline has a fourth script join: three train a third less, so that it is worth moving layers. A fifth waits as a spare.
func pipeline(ctx context.Context, s *scene) error {
	if err := s.scripts(ctx, "pipeline.py", 3); err != nil {
		return err
	}
	return s.row(ctx, "PyTorch pipeline", 4, func() error { return s.script("n4", "pipeline.py") })
}

// scripts starts NATS, the services and so many PyTorch scripts, and waits until all train.
func (s *scene) scripts(ctx context.Context, script string, nodes int) error {
	if err := s.open(ctx, nodes); err != nil {
		return err
	}
	for i := range nodes {
		if err := s.script(fmt.Sprint("n", i+1), script); err != nil {
			return err
		}
	}
	return s.trains(ctx, nodes, 0)
}
