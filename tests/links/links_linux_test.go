package links_test

import (
	"errors"
	"io"
	"net"
	"net/netip"
	"os"
	"testing"
	"time"

	"github.com/reknit/reknit/tests/links"
)

// joined returns both ends of a connection over a link, and the link.
func joined(t *testing.T, shape links.Shape) (near, far net.Conn, link *links.Link) {
	t.Helper()
	if err := links.Able(); err != nil {
		t.Skip(err)
	}
	var ends [2]links.End
	for i, address := range []string{"10.0.0.1/30", "10.0.0.2/30"} {
		namespace, err := links.NewNamespace()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(namespace.Close)
		ends[i] = links.End{Namespace: namespace, Address: netip.MustParsePrefix(address)}
	}
	link, err := links.Join(shape, ends[0], ends[1])
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(link.Close)
	var listener net.Listener
	if err := ends[1].Namespace.Do(func() (err error) { listener, err = net.Listen("tcp", "10.0.0.2:7000"); return err }); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { listener.Close() })
	if err := ends[0].Namespace.Do(func() (err error) { near, err = net.Dial("tcp", "10.0.0.2:7000"); return err }); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { near.Close() })
	if far, err = listener.Accept(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { far.Close() })
	return near, far, link
}

// roundTrip sends a byte there and back.
func roundTrip(near, far net.Conn) (time.Duration, error) {
	began, answer := time.Now(), make([]byte, 1)
	go io.CopyN(far, far, 1)
	if _, err := near.Write([]byte{1}); err != nil {
		return 0, err
	}
	_, err := io.ReadFull(near, answer)
	return time.Since(began), err
}

func TestARoundTripTakesTheDelayTwice(t *testing.T) {
	near, far, _ := joined(t, links.Shape{MegabitsPerSecond: 100, Delay: 15 * time.Millisecond})
	took, err := roundTrip(near, far)
	if err != nil || took < 30*time.Millisecond {
		t.Errorf("took %s, %v", took, err)
	}
}

func TestAStreamArrivesWholeAndNoFasterThanTheRate(t *testing.T) {
	const bytes, megabitsPerSecond = 4 << 20, 200
	near, far, _ := joined(t, links.Shape{MegabitsPerSecond: megabitsPerSecond, Delay: 5 * time.Millisecond})
	go func() {
		far.Write(make([]byte, bytes))
		far.Close()
	}()
	began := time.Now()
	arrived, err := io.Copy(io.Discard, near)
	if err != nil || arrived != bytes {
		t.Fatalf("%d of %d bytes, %v", arrived, bytes, err)
	}
	if rate := bytes * 8 / 1e6 / (time.Since(began) + links.Burst).Seconds(); rate > 0.966*megabitsPerSecond {
		t.Errorf("%.1f Mbit/s of payload over a link of %d", rate, megabitsPerSecond)
	}
}

func TestACutLinkPassesNothingUntilItIsBack(t *testing.T) {
	shape := links.Shape{MegabitsPerSecond: 100, Delay: time.Millisecond}
	near, far, link := joined(t, shape)
	link.Set(links.Shape{})
	near.SetReadDeadline(time.Now().Add(300 * time.Millisecond))
	if _, err := roundTrip(near, far); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("over a cut link: %v", err)
	}
	link.Set(shape)
	near.SetReadDeadline(time.Now().Add(time.Minute))
	if _, err := io.ReadFull(near, make([]byte, 1)); err != nil {
		t.Errorf("what was sent when the link was cut never came: %v", err)
	}
}
