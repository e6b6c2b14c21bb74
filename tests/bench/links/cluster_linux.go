package main

import (
	"errors"
	"fmt"
	"net/netip"

	"golang.org/x/sync/errgroup"

	"github.com/reknit/reknit/tests/links"
	"github.com/reknit/reknit/tests/nodes"
)

// cluster is a scenario come alive: a process in a namespace for each node, and the links between them.
type cluster struct {
	processes     []*nodes.Process // all of them
	joiner, store *nodes.Process
	neighbours    []*nodes.Process
	direct        []source // the neighbours, over their links to the joiner
	relayed       []source // the neighbours, each through the one before it
	stored        source   // the shared store, for the joiner
	written       source   // the neighbour that writes to the shared store, for the store
	links         []*links.Link
}

// build starts the processes and joins them. The returned cluster has to be ended also after an error.
func build(s scenario) (*cluster, error) {
	c, n := &cluster{}, len(s.Neighbours)
	for i := range n + 2 {
		p, err := nodes.Start(bucket(i))
		if err != nil {
			return c, err
		}
		c.processes = append(c.processes, p)
	}
	c.neighbours, c.joiner, c.store = c.processes[:n], c.processes[n], c.processes[n+1]
	return c, c.connect(s)
}

// connect makes the links. The joiner's to neighbour i is 10.1.i.0/30, that of neighbour i to the next 10.2.i.0/30, the
// store's are 10.3.0.0/30 to the joiner and 10.3.1.0/30 to the first neighbour; the nearer of each is 1, the other 2.
func (c *cluster) connect(s scenario) error {
	for i, neighbour := range c.neighbours {
		if err := c.join(s.Neighbours[i], c.joiner, neighbour, 1, i); err != nil {
			return err
		}
		c.direct = append(c.direct, source{Bucket: bucket(i), Address: address(1, i, 2),
			BytesPerSecond: s.Neighbours[i].BytesPerSecond()})
	}
	for i, neighbour := range c.neighbours {
		next := (i + 1) % len(c.neighbours)
		if err := c.join(s.Relays[i], neighbour, c.neighbours[next], 2, i); err != nil {
			return err
		}
		there := c.joiner.IP(fmt.Sprintf("route add %s/30 via %s", address(2, i, 0), address(1, i, 2)))
		back := c.neighbours[next].IP(fmt.Sprintf("route add %s/30 via %s", address(1, i, 0), address(2, i, 1)))
		if err := errors.Join(there, back); err != nil {
			return err
		}
		c.relayed = append(c.relayed, source{Bucket: bucket(next), Address: address(2, i, 2)})
	}
	c.stored = source{Bucket: bucket(len(s.Neighbours) + 1), Address: address(3, 0, 2)}
	c.written = source{Bucket: bucket(0), Address: address(3, 1, 2)}
	return errors.Join(c.join(s.Store, c.joiner, c.store, 3, 0), c.join(s.Store, c.store, c.neighbours[0], 3, 1))
}

func (c *cluster) join(shape links.Shape, near, far *nodes.Process, kind, number int) error {
	link, err := links.Join(shape,
		links.End{Namespace: near.Namespace, Address: netip.MustParsePrefix(address(kind, number, 1) + "/30")},
		links.End{Namespace: far.Namespace, Address: netip.MustParsePrefix(address(kind, number, 2) + "/30")})
	if err == nil {
		c.links = append(c.links, link)
	}
	return err
}

func address(kind, number, host int) string { return fmt.Sprintf("10.%d.%d.%d", kind, number, host) }

// stop makes every call to a node fail, and the nodes end.
func (c *cluster) stop() {
	for _, p := range c.processes {
		_ = p.Client.Close() // it may be closed already
	}
}

// end ends all processes, links and namespaces.
func (c *cluster) end() error {
	var ends errgroup.Group
	for _, p := range c.processes {
		ends.Go(p.End)
	}
	err := ends.Wait()
	for _, link := range c.links {
		link.Close()
	}
	return err
}
