package gossip

import (
	"errors"
	"math/rand/v2"
	"net"
	"strconv"
	"sync"
	"time"

	"github.com/hashicorp/memberlist"

	"github.com/reknit/reknit/tests/bench/monitor/wan"
)

const (
	basePort = 10000
	address  = "127.0.0.1"
	waiting  = 4096 // packets at a node
)

// network is that of a schedule. A packet that is lost, or meets a cut, does not come; one from or to a process that is
// stalled comes when that goes on.
type network struct {
	*wan.Schedule
	began time.Time
	mutex sync.Mutex // of random and dead
	drawn *rand.Rand
	dead  [wan.Nodes]bool
	ends  [wan.Nodes]*end
}

// end is a node's end of it: a memberlist.Transport.
type end struct {
	*network
	node    int
	packets chan *memberlist.Packet
	streams chan net.Conn
}

func (n *network) attach(node int) *end {
	n.ends[node] = &end{
		network: n, node: node, packets: make(chan *memberlist.Packet, waiting), streams: make(chan net.Conn, waiting),
	}
	return n.ends[node]
}

func (n *network) seconds() float64 { return time.Since(n.began).Seconds() }

// kill has a node's host vanish.
func (n *network) kill(node int) {
	n.mutex.Lock()
	defer n.mutex.Unlock()
	n.dead[node] = true
}

// takes is how long it takes from one node to another; ok is false where it does not come.
func (n *network) takes(from, to int, reliable bool) (long time.Duration, ok bool) {
	n.mutex.Lock()
	defer n.mutex.Unlock()
	now := n.seconds()
	if stall, is := n.Stalls[from].At(now); is {
		now = stall.To
	}
	trip, reached := n.Between(n.drawn, from, to, now)
	if !reached || n.dead[from] || n.dead[to] || !reliable && n.drawn.Float64() < wan.Loss {
		return 0, false
	}
	now += trip / 2
	if stall, is := n.Stalls[to].At(now); is {
		now = stall.To
	}
	return time.Duration((now - n.seconds()) * float64(time.Second)), true
}

func (e *end) FinalAdvertiseAddr(string, int) (net.IP, int, error) {
	return net.ParseIP(address), basePort + e.node, nil
}

func (e *end) addr() net.Addr { return &net.UDPAddr{IP: net.ParseIP(address), Port: basePort + e.node} }

func nodeAt(address string) (int, error) {
	_, port, err := net.SplitHostPort(address)
	if err != nil {
		return 0, err
	}
	number, err := strconv.Atoi(port)
	return number - basePort, err
}

func (e *end) WriteTo(data []byte, to string) (time.Time, error) {
	now := time.Now()
	node, err := nodeAt(to)
	if err != nil {
		return now, err
	}
	long, comes := e.takes(e.node, node, false)
	if !comes {
		return now, nil
	}
	data = append([]byte(nil), data...)
	time.AfterFunc(long, func() {
		select {
		case e.ends[node].packets <- &memberlist.Packet{Buf: data, From: e.addr(), Timestamp: time.Now()}:
		default:
		}
	})
	return now, nil
}

func (e *end) PacketCh() <-chan *memberlist.Packet { return e.packets }

func (e *end) DialTimeout(to string, timeout time.Duration) (net.Conn, error) {
	node, err := nodeAt(to)
	if err != nil {
		return nil, err
	}
	long, comes := e.takes(e.node, node, true)
	if !comes || long > timeout {
		time.Sleep(timeout)
		return nil, errors.New("no connection")
	}
	time.Sleep(long)
	here, there := net.Pipe()
	select {
	case e.ends[node].streams <- there:
		return here, nil
	default:
		return nil, errors.New("nobody accepts")
	}
}

func (e *end) StreamCh() <-chan net.Conn { return e.streams }

func (e *end) Shutdown() error { return nil }
