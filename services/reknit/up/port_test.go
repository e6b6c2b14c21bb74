package up

import (
	"context"
	"io"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// listens runs the command with --port 0 until it says where NATS is, and returns that address.
func listens(t *testing.T, dir string) string {
	t.Helper()
	ctx, interrupt := context.WithCancel(t.Context())
	defer interrupt()
	said, out := io.Pipe()
	ended := make(chan error, 1)
	go func() {
		err := up(ctx, out, "--dir", dir, "--port", "0", "--page", "none")
		out.Close()
		ended <- err
	}()
	var all strings.Builder
	address := ""
	for buffer := make([]byte, 1<<12); ; {
		n, err := said.Read(buffer)
		all.Write(buffer[:n])
		if found := regexp.MustCompile(`REKNIT_NATS_URL=nats://(\S+) `).FindStringSubmatch(all.String()); found != nil {
			address = found[1]
			interrupt()
		}
		if err != nil {
			break
		}
	}
	if err := <-ended; err != nil || address == "" {
		t.Fatalf("%v: it says %q", err, all.String())
	}
	return address
}

func TestAFreePortIsTakenAgainUnlessSomebodyElseHasIt(t *testing.T) {
	dir := t.TempDir()
	first := listens(t, dir)
	if again := listens(t, dir); again != first {
		t.Errorf("at %s, then at %s", first, again)
	}
	taken, err := net.Listen("tcp", first)
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	if beside := listens(t, dir); beside == first {
		t.Errorf("%s is taken", first)
	}
}

func TestThePageIsServedWhereItWasUnlessSomebodyElseHasThePort(t *testing.T) {
	o := options{dir: t.TempDir(), page: "auto"}
	address := func() string {
		t.Helper()
		address, err := o.pageAddress()
		if err != nil {
			t.Fatal(err)
		}
		return address
	}
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	first := free.Addr().String()
	if err := os.WriteFile(filepath.Join(o.dir, "page"), []byte(first), 0o600); err != nil {
		t.Fatal(err)
	}
	other := address()
	if other == first {
		t.Errorf("%s is taken", first)
	}
	free.Close()
	if again := address(); again != other {
		t.Errorf("at %s, then at %s", other, again)
	}
	o.page = first
	if named := address(); named != first {
		t.Errorf("at %s, expected what was named, %s", named, first)
	}
}
