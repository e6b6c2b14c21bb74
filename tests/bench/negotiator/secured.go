package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strconv"

	"github.com/reknit/reknit/services/reknit/provision"
	"github.com/reknit/reknit/shared/bus"
)

const institution = "alpha"

// side is a control plane and its trainers, each of which has a connection of its own.
type side struct {
	plane *plane
	fleet *fleet
	costs map[string]*cost
}

// compare measures at each size what security costs.
func (b bench) compare(ctx context.Context, sizes []string) error {
	for _, size := range sizes {
		nodes, err := strconv.Atoi(size)
		if err != nil || nodes < 6 {
			return fmt.Errorf("expected -nodes of 6 or more, got %q", size)
		}
		if err := b.compareAt(ctx, nodes); err != nil {
			return fmt.Errorf("%d nodes: %w", nodes, err)
		}
	}
	return nil
}

// compareAt has two clusters of one size make the same changes in turns: one without keys, and one that is secured. Other load of the
// machine meets both.
func (b bench) compareAt(ctx context.Context, nodes int) (err error) {
	directory, err := os.MkdirTemp("", "bench-negotiator-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(directory)) }()
	ctx, cancel := context.WithCancel(ctx)
	var sides [2]*side
	defer func() {
		cancel()
		for _, s := range sides {
			s.close()
		}
	}()
	for i, name := range []string{"open", "secured"} {
		folder := filepath.Join(directory, name)
		if err := os.Mkdir(folder, 0o700); err != nil {
			return err
		}
		if sides[i], err = sideOf(ctx, begin(folder, b.programs), folder, nodes, nodes+joins*b.trials, name == "secured"); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	for trial := range b.trials {
		for _, change := range changes {
			for turn := range sides {
				if err := sides[(turn+trial)%2].add(ctx, change); err != nil {
					return fmt.Errorf("%s: %w", change.name, err)
				}
			}
		}
	}
	printCompared(os.Stdout, nodes, sides[0].costs, sides[1].costs)
	return nil
}

func (p *plane) connect(ctx context.Context, name, kit string) (*bus.Bus, error) {
	config := bus.Config{URL: p.url, Name: name, Cluster: cluster}
	if p.kits != "" {
		config.Kit = kit
	}
	return bus.Connect(ctx, config)
}

func (s *side) add(ctx context.Context, change change) error {
	c := s.costs[change.name]
	if c == nil {
		c = &cost{change: change}
		s.costs[change.name] = c
	}
	return c.add(ctx, s.plane, s.fleet)
}

func (s *side) close() {
	if s == nil {
		return
	}
	if s.fleet != nil {
		s.fleet.close()
	}
	s.plane.close()
}

// serveSecured starts a server as it is provisioned for so many nodes, but for two lines: nothing listens for its health,
// and no write waits for the disk, as none does on the open side.
func (p *plane) serveSecured(directory string, nodes int) error {
	port, err := freePort()
	if err != nil {
		return err
	}
	p.kits = filepath.Join(directory, "kits")
	options := provision.Options{
		Dir: p.kits, Cluster: cluster, Hosts: []string{"127.0.0.1"}, Port: port, Institution: institution,
	}
	for n := range nodes {
		options.Nodes = append(options.Nodes, fmt.Sprint("n", n+1))
	}
	if err := provision.Security(options); err != nil {
		return err
	}
	if err := provision.Admission(provision.AdmissionOptions{Dir: p.kits}); err != nil {
		return err
	}
	file := filepath.Join(p.kits, "server", "nats.conf")
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	text = regexp.MustCompile(`(?m)^ *(http|sync_interval): .*$`).ReplaceAll(text, nil)
	here := filepath.Dir(file) // where it is meant to run, and does not
	text = regexp.MustCompile(`\b(cert_file|key_file|ca_file|store_dir|dir): (\w)`).ReplaceAll(text, []byte("$1: "+here+"/$2"))
	if err := os.WriteFile(file, text, 0o600); err != nil {
		return err
	}
	p.brokers = []string{broker}
	p.url = "nats://" + net.JoinHostPort("127.0.0.1", fmt.Sprint(port))
	return p.servers.Start(broker, "--config="+file, nil, true)
}

// printCompared writes what each change took without security and with it.
func printCompared(w io.Writer, nodes int, open, secured map[string]*cost) {
	fmt.Fprintf(w, "\n%d nodes, each with a connection of its own: without security / with it\n\n", nodes)
	fmt.Fprintln(w, "| change | times | p50 | with / without | p99 | events | CPU of the services | of the server | of the trainers |")
	fmt.Fprintln(w, "|---|---|---|---|---|---|---|---|---|")
	printed := map[string]bool{}
	for _, change := range changes {
		if printed[change.name] {
			continue // a join again
		}
		printed[change.name] = true
		a, b := open[change.name], secured[change.name]
		n := len(a.times)
		before, after := quantile(a.times, 0.5), quantile(b.times, 0.5)
		fmt.Fprintf(w, "| %s | %d | %s / %s | %.2f | %s / %s | %d / %d | %s / %s | %s / %s | %s / %s |\n", change.name, n,
			milliseconds(before), milliseconds(after), after.Seconds()/before.Seconds(),
			milliseconds(quantile(a.times, 0.99)), milliseconds(quantile(b.times, 0.99)), a.events/uint64(n), b.events/uint64(n),
			milliseconds(each(a.cpu, n)), milliseconds(each(b.cpu, n)), milliseconds(each(a.broker, n)), milliseconds(each(b.broker, n)),
			milliseconds(each(a.own, n)), milliseconds(each(b.own, n)))
	}
}
