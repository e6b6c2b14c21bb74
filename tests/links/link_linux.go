package links

import (
	"fmt"
	"net/netip"
	"os"
	"sync"
	"sync/atomic"
	"time"
)

// End is where a link ends: a namespace, and its address and network there.
type End struct {
	Namespace *Namespace
	Address   netip.Prefix
}

// Link joins two namespaces until it is closed.
type Link struct {
	devices [2]*os.File
	ways    [2]way
	carried sync.WaitGroup
}

// Join makes a link between two namespaces.
func Join(shape Shape, near, far End) (*Link, error) {
	var link Link
	for i, end := range []End{near, far} {
		if err := end.Namespace.Do(func() (err error) { link.devices[i], err = attach(end); return err }); err != nil {
			link.Close()
			return nil, fmt.Errorf("link at %s: %w", end.Address, err)
		}
	}
	for i := range link.ways {
		w := &link.ways[i]
		w.from, w.to, w.line.shape, w.passing = link.devices[i], link.devices[1-i], shape, make(chan packet, mostPassing)
		link.carried.Go(w.take)
		link.carried.Go(w.give)
	}
	return &link, nil
}

// attach makes the device of an end, in whose namespace it is called.
func attach(end End) (*os.File, error) {
	device, name, err := openTUN()
	if err != nil {
		return nil, err
	}
	// A device drops what its queue has no room for; the link's own queue is the one that should.
	for _, arguments := range []string{
		fmt.Sprintf("address add %s dev %s", end.Address, name),
		fmt.Sprintf("link set %s up txqueuelen %d", name, mostPassing),
	} {
		if err := end.Namespace.IP(arguments); err != nil {
			device.Close()
			return nil, err
		}
	}
	return device, nil
}

// Set changes what the link does from now on; what is on its way arrives as it would have.
func (l *Link) Set(shape Shape) {
	for i := range l.ways {
		l.ways[i].mutex.Lock()
		l.ways[i].line.shape = shape
		l.ways[i].mutex.Unlock()
	}
}

// Carried is how many bytes have gone over the link to an end, with their headers; what was dropped is not among them.
func (l *Link) Carried() (toNear, toFar int64) {
	return l.ways[1].carried.Load(), l.ways[0].carried.Load()
}

// Close removes the link.
func (l *Link) Close() {
	for _, device := range l.devices {
		if device != nil {
			device.Close()
		}
	}
	l.carried.Wait()
}

// packet is on its way to the other end.
type packet struct {
	arrival time.Time
	bytes   []byte
}

// mostPassing holds 100 ms of 1 Gbit/s in packets of 1,500 bytes.
const mostPassing = 8192

// way is one way of a link.
type way struct {
	from, to *os.File
	passing  chan packet
	carried  atomic.Int64

	mutex sync.Mutex
	line  line
}

// take reads from one device until it is closed.
func (w *way) take() {
	defer close(w.passing)
	buffer := make([]byte, largest)
	for {
		length, err := w.from.Read(buffer)
		if err != nil {
			return
		}
		bytes := wireBytes(buffer[:length])
		w.mutex.Lock()
		arrival, admitted := w.line.admit(time.Now(), bytes)
		w.mutex.Unlock()
		if !admitted {
			continue
		}
		select {
		case w.passing <- packet{arrival, append([]byte(nil), buffer[:length]...)}:
			w.carried.Add(int64(bytes))
		default:
		}
	}
}

// give writes what has arrived to the other device.
func (w *way) give() {
	for packet := range w.passing {
		time.Sleep(time.Until(packet.arrival))
		if _, err := w.to.Write(packet.bytes); err != nil {
			continue // the device is closed, or its namespace has no room: as lost as on a wire
		}
	}
}
