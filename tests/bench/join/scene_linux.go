package main

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/reknit/reknit/tests/links"
	"github.com/reknit/reknit/tests/nodes"
)

// scene is the processes, each in a namespace, and the links between them.
type scene struct {
	text      string
	processes []*nodes.Process // the trainers, the one that joins, and the hub
	links     []*links.Link
}

func (s *scene) hub() *nodes.Process { return s.processes[trainers+1] }

// home is the address of a node, whoever's link it is reached over.
func home(node int) string { return fmt.Sprintf("10.9.0.%d", node+1) }

// build starts the processes and joins each with each. The returned scene has to be ended also after an error.
func build(text string) (*scene, error) {
	s := &scene{text: text}
	for i := range trainers + 2 {
		p, err := nodes.Start(nodeName(i))
		if err != nil {
			return s, err
		}
		s.processes = append(s.processes, p)
		if err := p.IP(fmt.Sprintf("address add %s/32 dev lo", home(i))); err != nil {
			return s, err
		}
		for j := range i {
			shape := between
			if i == trainers+1 {
				shape = toHub
			}
			if err := s.join(shape, j, i); err != nil {
				return s, err
			}
		}
	}
	return s, nil
}

// join makes the link between two nodes, 10.near.far.0/30, and has them reach each other's homes over it.
func (s *scene) join(shape links.Shape, near, far int) error {
	ends, number := [2]links.End{}, [2]int{near, far}
	for i, node := range number {
		at := netip.MustParsePrefix(fmt.Sprintf("10.%d.%d.%d/30", near, far, i+1))
		ends[i] = links.End{Namespace: s.processes[node].Namespace, Address: at}
	}
	link, err := links.Join(shape, ends[0], ends[1])
	if err != nil {
		return err
	}
	s.links = append(s.links, link)
	for i, node := range number {
		other := 1 - i
		if err := s.processes[node].IP(fmt.Sprintf("route add %s/32 via %s src %s", home(number[other]), ends[other].Address.Addr(), home(node))); err != nil {
			return err
		}
	}
	return nil
}

// govern starts NATS and the services on the hub.
func (s *scene) govern(preCopySteps string) error {
	return s.hub().Call("Node.Govern", map[string]string{
		"REKNIT_CLUSTER": cluster, "REKNIT_START_NODES": fmt.Sprint(trainers),
		"REKNIT_PRECOPY_STEPS": preCopySteps,
	}, nil)
}

// train starts a trainer.
func (s *scene) train(node int) error {
	environment := environment(nodeName(node), s.text)
	environment["REKNIT_NATS_URL"] = fmt.Sprintf("nats://%s:%d", home(trainers+1), hubPort)
	environment["REKNIT_TRAINER_LISTEN"] = home(node) + ":7400"
	return s.processes[node].Call("Node.Train", environment, nil)
}

// hearEvery is how often the hub is asked what it heard.
const hearEvery = 20 * time.Millisecond

// await hears the hub out until the story has come to some point.
func (s *scene) await(ctx context.Context, what string, story *story, holds func() bool) error {
	for !holds() {
		var heard []Line
		if err := s.hub().Call("Node.Heard", story.lines, &heard); err != nil {
			return err
		}
		for _, line := range heard {
			if err := story.hear(line); err != nil {
				return err
			}
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("waited until %s: %w; %s", what, ctx.Err(), story)
		case <-time.After(hearEvery):
		}
	}
	return nil
}

// end ends all processes, links and namespaces.
func (s *scene) end() error {
	var ends errgroup.Group
	for _, p := range s.processes {
		ends.Go(p.End)
	}
	err := ends.Wait()
	for _, link := range s.links {
		link.Close()
	}
	return err
}

// stop makes every call to a node fail, and the nodes end.
func (s *scene) stop() {
	for _, p := range s.processes {
		_ = p.Client.Close() // it may be closed already
	}
}

// playLimit is far beyond what a run takes.
const playLimit = 4 * time.Minute

// play lets a node join while the others train, to the end of training.
func play(ctx context.Context, text, preCopySteps string) (result join, err error) {
	ctx, cancel := context.WithTimeout(ctx, playLimit)
	defer cancel()
	s, err := build(text)
	defer func() { err = errors.Join(err, s.end()) }()
	if err != nil {
		return result, fmt.Errorf("build the cluster: %w", err)
	}
	defer context.AfterFunc(ctx, s.stop)()
	if err := s.govern(preCopySteps); err != nil {
		return result, fmt.Errorf("start the hub: %w", err)
	}
	for i := range trainers {
		if err := s.train(i); err != nil {
			return result, err
		}
	}
	story := newStory()
	if err := s.await(ctx, "training goes on undisturbed", story, story.settled); err != nil {
		return result, err
	}
	if err := s.train(trainers); err != nil {
		return result, err
	}
	if err := s.await(ctx, "training is complete", story, story.complete); err != nil {
		return result, err
	}
	return story.join(preCopySteps)
}
