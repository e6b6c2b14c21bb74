package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/reknit/reknit/events"
	"github.com/reknit/reknit/services/reknit/processes"
	"github.com/reknit/reknit/shared/bus"
	"github.com/reknit/reknit/shared/embedded"
	"github.com/reknit/reknit/tests/observer"
)

const clusterID = "objects"

// waitLimit is far beyond what anything takes that is waited for.
const waitLimit = 3 * time.Minute

// scene is a cluster of real processes, and the tap on its servers.
type scene struct {
	reknit, python, text string
	directory            string
	settings             map[string]string // of every trainer

	nats      *embedded.Server
	bus       *bus.Bus
	processes *processes.Supervisor
	observer  *observer.Observer
	tap       *tap
	agents    map[string]*exec.Cmd // of PyTorch scripts

	mutex    sync.Mutex
	receipts []events.Receipt
	offers   []events.Offer
	caughtUp []events.CaughtUp
	stores   map[string]string // by node: where its store is
	behind   map[string]bool   // nodes whose stores cannot be dialled
	lost     map[string]bool
	failures []error
}

// open starts NATS and the services, which wait for so many nodes.
func (s *scene) open(ctx context.Context, startNodes int) (err error) {
	s.tap, s.agents, s.stores, s.lost = newTap(), map[string]*exec.Cmd{}, map[string]string{}, map[string]bool{}
	s.behind = map[string]bool{}
	if s.directory, err = os.MkdirTemp("", "reknit-objectstore-"); err != nil {
		return err
	}
	if s.nats, err = embedded.Start(embedded.Config{StoreDir: filepath.Join(s.directory, "nats")}); err != nil {
		return err
	}
	if s.bus, err = bus.Connect(ctx, bus.Config{URL: s.nats.URL(), Name: "objectstore", Cluster: clusterID}); err != nil {
		return err
	}
	if err := s.bus.Provision(ctx); err != nil {
		return err
	}
	if s.observer, err = observer.Listen(ctx, s.bus); err != nil {
		return err
	}
	if _, err := s.bus.Follow(ctx, events.EventStream, events.EventStream.Subjects(clusterID), bus.All, s.hear); err != nil {
		return err
	}
	hub, err := nats.Connect(s.nats.URL(), nats.NoReconnect(), nats.Name("tap"))
	if err != nil {
		return err
	}
	if err := s.tap.open(hub, ">", s.tap.hearHub(clusterID)); err != nil {
		return err
	}
	s.processes = processes.New(s.reknit, s.directory, func(string, error) {})
	for _, service := range processes.Services {
		environment := s.environment(map[string]string{"REKNIT_START_NODES": fmt.Sprint(startNodes)})
		if err := s.processes.Start(service, service, environment, true); err != nil {
			return err
		}
	}
	return nil
}

func (s *scene) environment(more ...map[string]string) map[string]string {
	all := map[string]string{"REKNIT_NATS_URL": s.nats.URL(), "REKNIT_CLUSTER": clusterID, "REKNIT_LOG_LEVEL": "INFO",
		"REKNIT_PRECOPY_STEPS": "0"} // every move that may be one is a pre-copy
	for _, settings := range more {
		maps.Copy(all, settings)
	}
	return all
}

// hear notes what the log says of moves, and taps each node's store before anybody reads from it.
func (s *scene) hear(event events.Event) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	switch event.Kind {
	case events.JoinRequested:
		join, err := events.Open[events.Join](event)
		if err == nil && join.ShardAddress != "" && !s.behind[join.Node] && s.stores[join.Node] != join.ShardAddress {
			s.stores[join.Node] = join.ShardAddress
			err = s.tapStore(join.Node, join.ShardAddress)
		}
		s.failures = append(s.failures, err)
	case events.ShardReceived:
		receipt, err := events.Open[events.Receipt](event)
		s.receipts, s.failures = append(s.receipts, receipt), append(s.failures, err)
	case events.ShardOffered:
		offer, err := events.Open[events.Offer](event)
		s.offers, s.failures = append(s.offers, offer), append(s.failures, err)
	case events.PreCopyCaughtUp:
		caughtUp, err := events.Open[events.CaughtUp](event)
		s.caughtUp, s.failures = append(s.caughtUp, caughtUp), append(s.failures, err)
	case events.NodeLost:
		s.lost[event.Subject] = true
	}
}

// storeFolder is below what a node's store says how its owner connects.
func (s *scene) storeFolder(node string) string { return filepath.Join(s.directory, "stores", node) }

// tapStore hears what a node's store is asked and answers.
func (s *scene) tapStore(node, address string) error {
	conn, err := connectAsOwner(s.storeFolder(node), address)
	if err != nil {
		return err
	}
	return s.tap.open(conn, ">", s.tap.hearStore)
}

// trainer starts a trainer of the reference kind.
func (s *scene) trainer(node string) error { return s.trainerWith(node, nil) }

func (s *scene) trainerWith(node string, settings map[string]string) error {
	environment := s.environment(s.settings, settings, map[string]string{
		"REKNIT_TRAINER_NODE": node, "REKNIT_TRAINER_SHARD_DIR": s.storeFolder(node),
	})
	return s.processes.Start(node, processes.Trainer, environment, false)
}

// script starts a PyTorch script under an agent.
func (s *scene) script(node, script string) error {
	agent := exec.Command(s.reknit, "agent", "run", "--", s.python, filepath.Join("services/agent/examples/pytorch", script),
		"--text", s.text, "--steps", "1000000")
	agent.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := os.MkdirAll(s.storeFolder(node), 0o700); err != nil {
		return err
	}
	agent.Env = os.Environ()
	for name, value := range s.environment(map[string]string{
		"REKNIT_AGENT_NODE": node, "REKNIT_AGENT_SHARD_DIR": s.storeFolder(node),
		"PYTHONPATH": "services/agent/python", "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo",
		"PYTHONDONTWRITEBYTECODE": "1",
	}) {
		agent.Env = append(agent.Env, name+"="+value)
	}
	log, err := os.Create(filepath.Join(s.directory, node+".log"))
	if err != nil {
		return err
	}
	defer log.Close()
	agent.Stdout, agent.Stderr = log, log
	s.agents[node] = agent
	return agent.Start()
}

// kill kills an agent and its script.
func (s *scene) kill(node string) error {
	agent := s.agents[node]
	if agent == nil {
		return s.processes.Kill(node)
	}
	delete(s.agents, node)
	return errors.Join(syscall.Kill(-agent.Process.Pid, syscall.SIGKILL), ignored(agent.Wait()))
}

// ignored is how a process ended that was killed.
func ignored(error) error { return nil }

// trains waits until just so many nodes train, under a plan beyond a generation.
func (s *scene) trains(ctx context.Context, nodes int, beyond uint64) error {
	expected := fmt.Sprintf("a plan beyond %d under which %d nodes train", beyond, nodes)
	return s.observer.Wait(ctx, waitLimit, expected, func(scene observer.Scene) bool {
		return scene.Plan.Generation > beyond && len(scene.Plan.Nodes) == nodes && scene.Trains()
	})
}

func (s *scene) generation() uint64 { return s.observer.Scene().Plan.Generation }

// await waits until something is so that the log or a server tells.
func (s *scene) await(ctx context.Context, what string, holds func() bool) error {
	ctx, cancel := context.WithTimeout(ctx, waitLimit)
	defer cancel()
	for {
		s.mutex.Lock()
		so := holds()
		s.mutex.Unlock()
		if so {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%s: %w", what, ctx.Err())
		case <-time.After(20 * time.Millisecond):
		}
	}
}

func (s *scene) close() {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	for _, node := range slices.Collect(maps.Keys(s.agents)) {
		_ = s.kill(node) // it may have ended
	}
	if s.processes != nil {
		s.processes.Close(ctx)
	}
	if s.tap != nil {
		s.tap.close()
	}
	if s.bus != nil {
		s.bus.Close()
	}
	if s.nats != nil {
		s.nats.Shutdown()
	}
}
