package up

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/reknit/reknit/services/reknit/processes"
	"github.com/reknit/reknit/services/reknit/tell"
	"github.com/reknit/reknit/shared/service"
)

// TestMain is also each of the services that the test starts: it says where it is told to connect, and lives until it is killed.
func TestMain(m *testing.M) {
	if len(os.Args) == 2 && slices.Contains(processes.Services, os.Args[1]) {
		fmt.Printf("%s of %s starts with %s\n", os.Args[1], os.Getenv("REKNIT_CLUSTER"), os.Getenv("REKNIT_START_NODES"))
		if os.Args[1] == "planner" {
			os.Exit(1) // what dies is started again, and said
		}
		select {}
	}
	os.Exit(m.Run())
}

// up runs the command.
func up(ctx context.Context, out io.Writer, arguments ...string) error {
	command := Command()
	command.SetArgs(append([]string{}, arguments...)) // none is none, rather than the process's
	command.SetOut(out)
	return command.ExecuteContext(ctx)
}

func TestTheServicesRunAndOneThatDiesIsStartedAgain(t *testing.T) {
	dir := t.TempDir()
	ctx, interrupt := context.WithCancel(t.Context())
	defer interrupt()
	said, out := io.Pipe()
	ended := make(chan error, 1)
	go func() {
		err := up(ctx, out, "--dir", dir, "--port", "0", "--cluster", "c", "--start-nodes", "3", "--page", "none")
		out.Close()
		ended <- err
	}()
	var lines []string
	for scan := bufio.NewScanner(said); scan.Scan(); {
		// The lines come in any order: where NATS is, that the planner died, and what it said last.
		if lines = append(lines, scan.Text()); len(lines) == 3 {
			err := up(ctx, io.Discard, "--dir", dir, "--port", "0")
			if err == nil || !strings.HasPrefix(err.Error(), "--dir: "+dir+" is in use by another reknit up;") {
				t.Errorf("a second one there: %v", err)
			}
			interrupt()
		}
	}
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	for _, expected := range []string{"REKNIT_NATS_URL=nats://127.0.0.1:", "planner ended by itself and is started again, exit status 1",
		"\n  planner of c starts with 3\n", "stopped; what there is stays in " + dir} {
		if !strings.Contains(strings.Join(lines, "\n"), expected) {
			t.Errorf("said %q, expected %q", lines, expected)
		}
	}
	for _, name := range processes.Services {
		log, err := os.ReadFile(filepath.Join(dir, "logs", name+".log"))
		if err != nil {
			t.Error(err)
		}
		if expected := "planner of c starts with 3\n"; name == "planner" && !strings.HasPrefix(string(log), expected) {
			t.Errorf("the planner logs %q: expected %q", log, expected)
		}
	}
}

func TestAFlagThatIsNotAsExpectedIsNamed(t *testing.T) {
	for flag, value := range map[string]string{
		"--dir": "", "--cluster": "a b", "--host": "localhost", "--port": "70000", "--start-nodes": "0",
	} {
		err := up(t.Context(), io.Discard, flag, value)
		if use := (tell.UsageError{}); !errors.As(err, &use) || !strings.HasPrefix(err.Error(), flag+": expected") {
			t.Errorf("%s %q: got %v", flag, value, err)
		}
	}
}

func TestAPortThatIsTakenIsTold(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	port := strconv.Itoa(taken.Addr().(*net.TCPAddr).Port)
	err = up(t.Context(), io.Discard, "--dir", t.TempDir(), "--port", port)
	if err == nil || !strings.HasPrefix(err.Error(), "--port: "+port+" is taken") {
		t.Error(err)
	}
}

func TestASettingOfAServiceThatIsWrongIsToldBeforeAnythingIsSaidToRun(t *testing.T) {
	t.Setenv("REKNIT_PAGE_TOKEN", "too short")
	var said strings.Builder
	err := up(t.Context(), &said, "--dir", t.TempDir(), "--port", "0", "--page", "127.0.0.1:0")
	if !errors.As(err, &service.Misconfigured{}) || !strings.Contains(err.Error(), "REKNIT_PAGE_TOKEN: expected characters, at least 16") {
		t.Errorf("got %v", err)
	}
	if said.Len() > 0 {
		t.Errorf("it says %q", said.String())
	}
}
