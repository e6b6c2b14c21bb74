package workers

import (
	"bufio"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/reknit/reknit/events"
	"github.com/reknit/reknit/shared/bus"
	"github.com/reknit/reknit/shared/embedded"
	"github.com/reknit/reknit/tests/services"
)

// patience is how long a test waits for what must happen; nothing takes that long.
const patience = 2 * time.Minute

var program string // the command reknit

// atATime is how many tests run at a time, unless the command line says otherwise: they wait more than they compute.
const atATime = "12"

func TestMain(m *testing.M) {
	if err := flag.Set("test.parallel", atATime); err != nil {
		panic(err)
	}
	slog.SetDefault(slog.New(slog.NewTextHandler(io.Discard, nil)))
	if os.Getenv("REKNIT_TEST_LOG") != "" {
		slog.SetDefault(slog.New(slog.NewTextHandler(os.Stderr, nil)))
	}
	os.Exit(run(m))
}

// run builds the command, where there is something to run with it.
func run(m *testing.M) int {
	if _, err := exec.LookPath("python3"); err != nil {
		return m.Run() // each test is skipped
	}
	dir, err := os.MkdirTemp("", "reknit-workers-")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir)
	program = filepath.Join(dir, "reknit")
	build := exec.Command("go", "build", "-trimpath", "-o", program, "../../services/reknit/cmd/reknit")
	build.Stderr = os.Stderr
	if err := build.Run(); err != nil {
		panic(err)
	}
	return m.Run()
}

// cluster is a NATS server, the four services and workers.
type cluster struct {
	*testing.T
	nats     embedded.Config
	server   *embedded.Server
	url      string
	steps    int
	script   []string  // and what runs it
	settings []string  // of all workers
	errors   io.Writer // of agents and workers without one; nil: nobody reads them
	ledger   book
}

// newCluster starts the server and the services. The first plan waits for so many nodes.
func newCluster(t *testing.T, startNodes, steps int) *cluster {
	c := newHub(t, steps)
	services.Run(t, c.url, "workers", startNodes)
	return c
}

// newHub starts the server, without the services.
func newHub(t *testing.T, steps int) *cluster {
	if program == "" {
		t.Skip("python3 is not installed")
	}
	c := &cluster{T: t, steps: steps, script: []string{"python3", "worker.py"}, nats: embedded.Config{StoreDir: t.TempDir()}}
	c.ledger.losses = map[int]float64{}
	if os.Getenv("REKNIT_TEST_LOG") != "" {
		c.errors = os.Stderr
	}
	c.startNATS()
	t.Cleanup(func() { c.server.Shutdown() })
	services.Provision(t, c.url, "workers")
	return c
}

func (c *cluster) startNATS() {
	c.Helper()
	var err error
	if c.server, err = embedded.Start(c.nats); err != nil {
		c.Fatal(err)
	}
	c.url = c.server.URL()
}

// restartNATS ends the server, and starts it again with its store at the same address.
func (c *cluster) restartNATS() {
	c.Helper()
	address, err := url.Parse(c.url)
	if err == nil {
		c.nats.Port, err = strconv.Atoi(address.Port())
	}
	if err != nil {
		c.Fatal(err)
	}
	c.server.Shutdown()
	c.startNATS()
}

// hearErrors keeps what agents and workers say beside their lines, from now on, and returns what was said so far.
func (c *cluster) hearErrors() (said func() string) {
	c.Helper()
	file, err := os.Create(filepath.Join(c.TempDir(), "errors"))
	if err != nil {
		c.Fatal(err)
	}
	c.Cleanup(func() { file.Close() })
	c.errors = file
	return func() string {
		text, err := os.ReadFile(file.Name())
		if err != nil {
			c.Error(err)
		}
		return string(text)
	}
}

// awaitEvent returns the first event of a kind that fits, from the beginning of the log on.
func (c *cluster) awaitEvent(kind events.Kind, fits func(events.Event) bool) events.Event {
	c.Helper()
	b, err := bus.Connect(c.Context(), bus.Config{URL: c.url, Name: "test", Cluster: "workers"})
	if err != nil {
		c.Fatal(err)
	}
	defer b.Close()
	found := make(chan events.Event, 1<<10)
	hear := func(event events.Event) {
		if fits(event) {
			found <- event
		}
	}
	stop, err := b.Follow(c.Context(), events.EventStream, []string{events.EventSubject("workers", kind, "*")}, bus.All, hear)
	if err != nil {
		c.Fatal(err)
	}
	defer stop()
	select {
	case event := <-found:
		return event
	case <-time.After(patience):
		c.Fatalf("no %s that fits within %v", kind, patience)
		return events.Event{}
	}
}

// worker is a script under its agent.
type worker struct {
	*cluster
	node  string
	agent *exec.Cmd
	pid   int // of the script
	lines chan said
	done  int // completed steps that it said, or took over
}

// said is a line that a worker says.
type said struct {
	Node     string
	Loaded   int // id of the process that has loaded what it needs, and is about to join
	PID      int
	Done     int
	World    int
	Rank     int
	Step     int    // completed steps of a script that is PyTorch's own
	GivenUp  string `json:"given_up"`
	Adopted  *int
	Took     []int
	Finished *int
	Digest   string

	ExitEvent string `json:"exit_event"` // that a script captured

	Incarnation string // of a worker without an agent
	Address     string
	Generation  int
	Resumes     int // completed steps with which a generation begins
	Ended       string
	Hub         string // why it has none

	Trained *trained
	Loss    *float64 // of the last completed step
}

// start starts a worker under an agent that is called with arguments.
func (c *cluster) start(node string, arguments ...string) *worker {
	c.Helper()
	return c.startWith(node, nil, arguments...)
}

// startWith starts a worker with settings of its own.
func (c *cluster) startWith(node string, settings []string, arguments ...string) *worker {
	c.Helper()
	w := c.launch(node, c.agent(node, settings, arguments...))
	w.pid = w.await("its start", func(line said) bool { return line.PID > 0 }).PID
	return w
}

// startTogether starts workers of which none joins before all can: else the first may have trained to the end when the others come,
// and these are told that nothing is left to train.
func (c *cluster) startTogether(settings func(node string) []string, nodes ...string) (workers []*worker) {
	c.Helper()
	loaded := filepath.Join(c.TempDir(), "loaded")
	for _, node := range nodes {
		workers = append(workers, c.launch(node, c.agent(node, append(settings(node), "WORKER_LOADS_UNTIL="+loaded))))
	}
	for _, w := range workers {
		w.pid = w.await("what it loads", func(line said) bool { return line.Loaded > 0 }).Loaded
	}
	touch(c.T, loaded)
	for _, w := range workers {
		w.await("its place", func(line said) bool { return line.PID > 0 })
	}
	return workers
}

// agent returns an agent that is not started yet.
func (c *cluster) agent(node string, settings []string, arguments ...string) *exec.Cmd {
	arguments = slices.Concat([]string{"agent", "run"}, arguments, []string{"--"}, c.script)
	agent := exec.Command(program, arguments...)
	agent.Env = append(os.Environ(), "REKNIT_NATS_URL="+c.url, "REKNIT_CLUSTER=workers", "REKNIT_AGENT_NODE="+node,
		"WORKER_STEP_SECONDS=0.01", "WORKER_STEPS="+itoa(c.steps))
	agent.Env = slices.Concat(agent.Env, c.settings, settings)
	return agent
}

// launch starts a process that says lines.
func (c *cluster) launch(node string, process *exec.Cmd) *worker {
	c.Helper()
	w := &worker{cluster: c, node: node, agent: process, lines: make(chan said, 1<<16)}
	process.Stderr = c.errors
	output, err := process.StdoutPipe()
	if err == nil {
		err = process.Start()
	}
	if err != nil {
		c.Fatal(err)
	}
	c.Cleanup(w.kill)
	go w.read(output)
	return w
}

func itoa(n int) string { text, _ := json.Marshal(n); return string(text) }

func (w *worker) read(output io.Reader) {
	defer close(w.lines)
	for scanner := bufio.NewScanner(output); scanner.Scan(); {
		var line said
		if json.Unmarshal(scanner.Bytes(), &line) == nil {
			w.ledger.note(line)
			w.lines <- line
		}
	}
}

// kill leaves nothing behind, whatever the test did.
func (w *worker) kill() {
	if w.pid > 0 {
		_ = syscall.Kill(w.pid, syscall.SIGKILL) // it may have ended
	}
	_ = w.agent.Process.Kill()
	_ = w.agent.Wait()
}

// await returns the next line that fits.
func (w *worker) await(what string, fits func(said) bool) said {
	w.Helper()
	for deadline := time.After(patience); ; {
		select {
		case line, open := <-w.lines:
			if !open {
				w.Fatalf("%s ended before %s", w.node, what)
			}
			w.note(line)
			if fits(line) {
				return line
			}
		case <-deadline:
			w.Fatalf("%s: no %s within %v", w.node, what, patience)
		}
	}
}

// note fails the test where a plan undoes a step that the worker completed.
func (w *worker) note(line said) {
	w.Helper()
	if line.Generation > 0 && line.Resumes < w.done {
		w.Errorf("%s: generation %d goes back from step %d to %d", w.node, line.Generation, w.done, line.Resumes)
	}
	w.done = max(w.done, line.Done)
	if line.Adopted != nil {
		w.done = max(w.done, *line.Adopted)
	}
}

// untilWorld waits for a step that is completed with so many nodes, and returns how long that took.
func (w *worker) untilWorld(nodes int) time.Duration {
	w.Helper()
	began := time.Now()
	w.await("a step with "+itoa(nodes), func(line said) bool { return line.World == nodes && line.GivenUp == "" })
	return time.Since(began)
}

// untilItsEnd waits for the end of the script.
func (w *worker) untilItsEnd() {
	w.Helper()
	for deadline := time.After(patience); ; {
		select {
		case _, open := <-w.lines:
			if !open {
				return
			}
		case <-deadline:
			w.Fatalf("%s runs on after %v", w.node, patience)
		}
	}
}

// signal sends a signal to a process of the worker.
func (w *worker) signal(pid int, signal syscall.Signal) {
	w.Helper()
	if err := syscall.Kill(pid, signal); err != nil {
		w.Fatal(err)
	}
}

// finish returns the digest of the state after the last step.
func (w *worker) finish() string {
	w.Helper()
	return w.await("its last step", func(line said) bool { return line.Finished != nil }).Digest
}

// trainings are those of one process, by the script, its settings and the steps: each is the same whenever it is made.
var trainings sync.Map

// alone returns what a worker says that trains so many steps without an agent.
func (c *cluster) alone(steps int) []said {
	c.Helper()
	script, settings := c.script, append(slices.Clone(c.settings), "WORKER_STEPS="+itoa(steps))
	made, _ := trainings.LoadOrStore(fmt.Sprintf("%q %q", script, settings), sync.OnceValues(func() ([]said, error) {
		return trainAlone(script, settings)
	}))
	lines, err := made.(func() ([]said, error))()
	if err != nil {
		c.Fatal(err)
	}
	return lines
}

func trainAlone(script, settings []string) (lines []said, err error) {
	process := exec.Command(script[0], script[1:]...)
	process.Env = append(os.Environ(), settings...)
	output, err := process.Output()
	for text := range strings.Lines(string(output)) {
		var line said
		err = errors.Join(err, json.Unmarshal([]byte(text), &line))
		lines = append(lines, line)
	}
	return lines, err
}
