package agentd

import (
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/reknit/reknit/shared/service"
)

func TestMain(m *testing.M) {
	slog.SetDefault(slog.New(slog.NewTextHandler(io.Discard, nil)))
	os.Exit(m.Run())
}

// ran is a trainer that takes no part in a cluster: a script that says what it finds into a file.
type ran struct {
	*testing.T
	said    string
	signals chan os.Signal
}

func newRan(t *testing.T) *ran {
	return &ran{T: t, said: filepath.Join(t.TempDir(), "said"), signals: make(chan os.Signal, 4)}
}

// run runs a script whose $1 is the file; its agent reaches no NATS.
func (r *ran) run(script string, restarts int) (status int) {
	r.Helper()
	config := Config{URL: "nats://127.0.0.1:1", Cluster: "test", Listen: "127.0.0.1:0"}
	status, err := Run(r.Context(), config, []string{"sh", "-c", script, "sh", r.said}, restarts, r.signals)
	if err != nil {
		r.Fatal(err)
	}
	return status
}

// logged is what was logged so far.
type logged struct {
	mutex sync.Mutex
	text  strings.Builder
}

// hearLog keeps what is logged until the test ends.
func hearLog(t *testing.T) *logged {
	log, before := new(logged), slog.Default()
	slog.SetDefault(slog.New(slog.NewTextHandler(log, nil)))
	t.Cleanup(func() { slog.SetDefault(before) })
	return log
}

func (l *logged) Write(line []byte) (int, error) {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	return l.text.Write(line)
}

func (l *logged) String() string {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	return l.text.String()
}

func (r *ran) lines() []string {
	r.Helper()
	said, err := os.ReadFile(r.said)
	if err != nil {
		r.Fatal(err)
	}
	return strings.Split(strings.TrimSpace(string(said)), "\n")
}

func TestAScriptThatKnowsNothingOfTheAgentRunsUnderIt(t *testing.T) {
	r := newRan(t)
	if status := r.run(`test -S "$REKNIT_AGENT" && echo "$RANK of $WORLD_SIZE at $MASTER_ADDR" > "$1"`, 0); status != 0 {
		t.Fatalf("status %d", status)
	}
	if lines := r.lines(); !slices.Equal(lines, []string{"0 of 1 at 127.0.0.1"}) {
		t.Errorf("it says %q", lines)
	}
}

func TestAScriptThatHasNotJoinedInAMinuteIsToldOnceWhatToDo(t *testing.T) {
	logged := hearLog(t)
	before := aloneAfter
	if before < time.Minute {
		t.Errorf("%v is too soon: an import of PyTorch or a data set takes as long", before)
	}
	aloneAfter = 10 * time.Millisecond
	t.Cleanup(func() { aloneAfter = before })
	newRan(t).run("sleep 0.5", 0)
	if said := logged.String(); strings.Count(said, "has not joined yet") != 1 || !strings.Contains(said, "--unchanged") {
		t.Errorf("it is told %q: expected once what to do", said)
	}
}

func TestTheStatusIsThatOfTheTrainer(t *testing.T) {
	for script, expected := range map[string]int{"exit 0": 0, "exit 7": 7, "kill -9 $$": 128 + 9} {
		if status := newRan(t).run(script, 0); status != expected {
			t.Errorf("%s: expected status %d, got %d", script, expected, status)
		}
	}
}

func TestATrainerThatFailsIsStartedAgainSoOftenAndNoOftener(t *testing.T) {
	r, logged := newRan(t), hearLog(t)
	began := time.Now()
	if status := r.run(`echo "$TORCHELASTIC_RESTART_COUNT" >> "$1"; exit 3`, 1); status != 3 {
		t.Errorf("status %d", status)
	}
	if lines := r.lines(); !slices.Equal(lines, []string{"0", "1"}) {
		t.Errorf("it ran as %q: expected twice", lines)
	}
	if took := time.Since(began); took < firstPause {
		t.Errorf("it was started again after %v: expected a pause of %v", took, firstPause)
	}
	if said := logged.String(); strings.Count(said, "is not started again") != 1 {
		t.Errorf("it is told %q: expected that no restarts are left", said)
	}
}

func TestWhatATrainerStartedEndsWithIt(t *testing.T) {
	r := newRan(t)
	if status := r.run(`sleep 60 & echo $! > "$1"; exit 0`, 0); status != 0 {
		t.Fatalf("status %d", status)
	}
	child, err := strconv.Atoi(r.lines()[0])
	if err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(2 * time.Minute); runs(child); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("a child of the trainer runs on")
		}
	}
}

// runs reports whether a process runs: one that has ended may wait for somebody to ask how.
func runs(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return syscall.Kill(pid, 0) == nil
	}
	return !strings.Contains(string(stat), ") Z ")
}

func TestATrainerThatTakesNoPartHearsTheSignalItself(t *testing.T) {
	r := newRan(t)
	go func() {
		for { // until the script listens
			if _, err := os.Stat(r.said); err == nil {
				r.signals <- syscall.SIGTERM
				return
			}
			time.Sleep(time.Millisecond)
		}
	}()
	if status := r.run(`trap 'exit 5' TERM; touch "$1"; while :; do sleep 0.05; done`, 3); status != 5 {
		t.Errorf("status %d: expected that it ended upon the signal, and was not started again", status)
	}
}

// Python in the middle of an import or a sum hears no signal: Ctrl-C twice took 18 s.
func TestASecondSignalEndsATrainerThatHearsNone(t *testing.T) {
	r := newRan(t)
	go func() {
		for { // until the script listens
			if _, err := os.Stat(r.said); err == nil {
				r.signals <- syscall.SIGINT
				r.signals <- syscall.SIGINT
				return
			}
			time.Sleep(time.Millisecond)
		}
	}()
	if status := r.run(`trap '' INT TERM; touch "$1"; for i in $(seq 400); do sleep 0.05; done`, 3); status != 128+int(syscall.SIGKILL) {
		t.Errorf("status %d: expected that it was killed, and not started again", status)
	}
}

func TestTwoSignalsThatComeWhileATrainerIsStartedAgainAreBothHeard(t *testing.T) {
	signals := make(chan os.Signal, 1)
	signals <- syscall.SIGINT // behind the one by which it holds
	log, began := hearLog(t), time.Now()
	(&parent{signals: signals}).hold(nil, 1)
	if !strings.Contains(log.String(), "keeps nothing of what its trainer left") {
		t.Errorf("it does not say what that ends: %s", log)
	}
	if took := time.Since(began); took >= holdQuiet {
		t.Errorf("it held for %v beyond the second signal", took)
	}
}

func TestWhatIsNotAsExpectedIsNamedByItsVariable(t *testing.T) {
	for variable, environment := range map[string]map[string]string{
		"REKNIT_CLUSTER":          {"REKNIT_CLUSTER": "a b"},
		"REKNIT_AGENT_NODE":       {"REKNIT_AGENT_NODE": "a b"},
		"REKNIT_AGENT_LISTEN":     {"REKNIT_AGENT_LISTEN": "127.0.0.1"},
		"REKNIT_AGENT_ADVERTISE":  {"REKNIT_AGENT_LISTEN": ":0"},
		"REKNIT_AGENT_SHARD_PORT": {"REKNIT_AGENT_SHARD_PORT": "70000"},
		"REKNIT_AGENT_SOCKET":     {"REKNIT_AGENT_SOCKET": "/nowhere/x/agent.sock"},
		"REKNIT_CONSENT_HOURS":    {"REKNIT_CONSENT_HOURS": "22:00-22:00"},
		"REKNIT_SNAPSHOT_BYTES":   {"REKNIT_SNAPSHOT_BYTES": "-5"},
		"REKNIT_SNAPSHOT_BUCKET":  {"REKNIT_SNAPSHOT_BUCKET": "foo"},
	} {
		err := service.Read(new(Config), environment)
		if err == nil || !strings.HasPrefix(err.Error(), variable+": expected") {
			t.Errorf("expected an error of %s, got %v", variable, err)
		}
	}
}

func TestArgumentsAreACommandAndHowItIsRun(t *testing.T) {
	how, err := parse([]string{"--restarts", "5", "--unchanged", "--", "python", "train.py", "--restarts", "1"})
	if err != nil || how.restarts != 5 || !how.unchanged ||
		!slices.Equal(how.command, []string{"python", "train.py", "--restarts", "1"}) {
		t.Errorf("%+v %v", how, err)
	}
	for _, arguments := range [][]string{{}, {"--restarts", "-1", "true"}, {"--port", "1", "true"}} {
		if _, err := parse(arguments); err == nil {
			t.Errorf("%q was taken", arguments)
		}
	}
}

func TestWhoMayNotLeaveHearsHowToEndAnyway(t *testing.T) {
	log := hearLog(t)
	p := &parent{stays: make(chan struct{}, 1)}
	p.stay()
	for _, says := range []string{"does not let it go", "Two signals within 10s end it anyway", "a whole job is stopped by two to each"} {
		if !strings.Contains(log.String(), says) {
			t.Errorf("expected %q in %s", says, log)
		}
	}
}
