package agentd

import (
	"context"
	"log/slog"
	"os"
	"runtime"
	"strconv"
	"syscall"
	"time"

	"github.com/reknit/reknit/services/agent/fence"
	"github.com/reknit/reknit/services/agent/local"
)

const (
	askedToGo     = "asked to go"
	leaveDeadline = 30 * time.Second // the shortest notice that clouds give for a spot instance
	secondSignal  = 10 * time.Second // whoever wants the end sends it within these

	firstPause  = time.Second // before a trainer that failed is started again; then twice as long each time
	longestWait = 30 * time.Second

	holdQuiet = 2 * time.Second // for a look at whether others need what a trainer left

	soundAfter = 5 * time.Minute // a trainer that ran so long has all its restarts again
)

// aloneAfter is when a script that has not joined is said not to have: imports, data and a pretrained model have had their time, and
// whoever trains alone without knowing it is told before much is lost.
var aloneAfter = time.Minute

// parent runs a trainer and is its parent: it knows of its end at once.
type parent struct {
	server   *local.Server
	input    *input
	command  []string
	restarts int              // that are left
	signals  <-chan os.Signal // wishes to go
	leaving  bool             // the cluster was asked
	wished   time.Time        // when it was
	asked    bool             // to end
	killed   <-chan time.Time // when it is ended that was asked; nil: it has all the time that it needs
	started  int              // times
	child    *child           // under way
	stuck    chan struct{}    // a token: it is to be killed
	stays    chan struct{}    // a token: it may not leave
}

// put puts a token where none is.
func put(tokens chan struct{}) {
	select {
	case tokens <- struct{}{}:
	default:
	}
}

// Run runs a command as the trainer of this agent, and again where it fails, restarts times at most, unless its join
// would be refused again. It returns the status of the last. The first of the signals is a wish to leave the cluster; the
// ones after it go to the trainer, unless the cluster refused the wish a while before.
func Run(
	ctx context.Context, config Config, command []string, restarts int, signals <-chan os.Signal,
) (status int, err error) {
	p := &parent{
		input: inputOf(os.Stdin), command: command, restarts: restarts, signals: signals, stuck: make(chan struct{}, 1), stays: make(chan struct{}, 1),
	}
	if config.Node == "" {
		node, free := steadyNode(config.Cluster)
		defer free()
		config.Node = node
	}
	server, err := config.serve(ctx, func() { put(p.stuck) }, p.stay)
	if err != nil {
		return 0, err
	}
	defer server.Close()
	p.server = server
	pause := firstPause
	for {
		began := time.Now()
		status, err = p.once()
		p.hearRefusal()
		if time.Since(began) > soundAfter {
			p.restarts, pause = restarts, firstPause
		}
		if err != nil || status == 0 || p.asked || p.leaving {
			return status, err
		}
		if p.restarts == 0 {
			slog.Error("the trainer failed, and is not started again", "status", status, "restarts", restarts)
			p.hold(server.Released(), 2)
			return status, nil
		}
		if refused := server.Refused(); refused != nil {
			slog.Error("the trainer is not started again: it would be refused again", "status", status, "reason", refused)
			p.hold(server.Released(), 2)
			return status, nil
		}
		if err := p.input.again(); err != nil {
			slog.Error("the trainer is not started again", "status", status, "reason", err)
			p.hold(server.Released(), 2)
			return status, nil
		}
		p.restarts--
		slog.Warn("the trainer failed; it is started again", "status", status, "after", pause.String(), "restarts left", p.restarts)
		if p.pause(pause) {
			p.hold(server.Released(), 1)
			return status, nil
		}
		pause = min(2*pause, longestWait)
	}
}

// pause lets time pass before a trainer is started again, and reports whether a signal ended that. While nobody else ever had what the
// trainer left, the first signal ends nothing, as where it runs.
func (p *parent) pause(long time.Duration) (ended bool) {
	over := time.After(long)
	for {
		select {
		case <-over:
			return false
		case signal := <-p.signals:
			if _, alone := p.server.Keeps(); !alone || !p.isFirst(signal) {
				return true
			}
		}
	}
}

// isFirst reports whether a signal is the first in a while, and tells then what a second one does.
func (p *parent) isFirst(signal os.Signal) bool {
	if time.Since(p.wished) < secondSignal {
		return false
	}
	p.wished = time.Now()
	slog.Warn("the trainer is started again, for its agent may be the only one that has what it left. A second signal within "+
		secondSignal.String()+" ends both, and what only they hold is lost", "signal", signal)
	return true
}

// hold returns once nobody needs what the trainer left, which is released then, or upon so many signals.
func (p *parent) hold(released <-chan struct{}, signals int) {
	quiet := time.After(holdQuiet)
	for signals > 0 {
		select {
		case <-released:
			return
		case <-quiet:
			slog.Warn("what the trainer left is kept until others hold it: the agent gives it to nodes that join, and ends then. Two "+
				"signals end it at once, and what only it holds is lost", "pid of the agent", os.Getpid())
		case <-p.signals:
			if signals--; signals == 0 {
				slog.Warn("the agent ends, and keeps nothing of what its trainer left: it comes from others that hold it, or from a " +
					"snapshot")
			}
		}
	}
}

// once runs the trainer to its end, and ends with it all processes that it started.
func (p *parent) once() (status int, err error) {
	runtime.LockOSThread() // the trainer ends with the thread that started it
	defer runtime.UnlockOSThread()
	select {
	case <-p.stuck: // was said of the one before
	default:
	}
	environment, err := p.environment()
	if err != nil {
		return 0, err
	}
	if p.child, err = begin(p.command, environment, p.input); err != nil {
		return 0, err
	}
	p.started++
	slog.Info("the trainer runs", "pid", p.child.pid(), "socket", p.server.Socket)
	alone := time.AfterFunc(aloneAfter, p.sayThatItHasNotJoined)
	defer alone.Stop()
	for {
		select {
		case ended := <-p.child.ended:
			if ended.err != nil {
				return 0, ended.err
			}
			p.server.Gone(ended.state.String(), ended.code())
			return ended.status(), nil
		case signal := <-p.signals:
			p.hearRefusal()
			p.ask(signal)
		case <-p.killed:
			slog.Warn("the trainer has not ended in its time to save, and is killed", "pid", p.child.pid(), "after", fence.Grace.String())
			p.child.signal(syscall.SIGKILL)
		case <-p.stuck:
			slog.Warn("the trainer hangs, and is killed", "pid", p.child.pid())
			_ = p.child.command.Process.Kill() // it may have ended
		}
	}
}

// sayThatItHasNotJoined tells who started a script that may know nothing of the agent what he has.
func (p *parent) sayThatItHasNotJoined() {
	if !p.server.Knows() {
		slog.Warn("the script has not joined yet. If it trains already, it trains alone, as rank 0 of a world of 1, and may overwrite the "+
			"others' checkpoint: reknit.py or reknit_torch.py joins, and a script that knows nothing of Reknit is started with --unchanged",
			"after", aloneAfter.String(), "socket", p.server.Socket)
	}
}

// stay tells who wanted the trainer to go that the cluster does not let it, and how it ends anyway.
func (p *parent) stay() {
	put(p.stays)
	slog.Warn("the trainer goes on, for the cluster does not let it go. Two signals within "+secondSignal.String()+
		" end it anyway, and what only it holds is lost; a whole job is stopped by two to each of its trainers",
		"pid of the agent", os.Getpid())
}

// hearRefusal has the next signal be a wish anew, where the cluster refused the last one a while ago.
func (p *parent) hearRefusal() {
	if time.Since(p.wished) < secondSignal {
		return
	}
	select {
	case <-p.stays:
		p.leaving = false
		p.server.Stay()
	default:
	}
}

var keepsNothing = "the others go on without the trainer. The signal goes to it, and it has " + fence.Grace.String() + " to save what it " +
	"likes; a third signal kills it. Its agent ends with it, and keeps nothing of what it held: that comes from others that hold it, or " +
	"from a snapshot"

// ask has a trainer leave the cluster. One that takes no part in it, and one that was asked before, hears the signal itself; the cluster
// does without the latter at once. The signal after one that went to the trainer kills it: Python in the middle of a call hears none.
func (p *parent) ask(signal os.Signal) {
	if !p.asked && !p.leaving && p.server.Trainers() > 0 {
		p.leaving, p.wished = true, time.Now()
		slog.Warn("the trainer ends once the cluster does without it. A second signal within "+secondSignal.String()+
			" ends it at once, and what only it holds is lost. A whole job is stopped by reknit stop where snapshots are written, "+
			"else by two signals to each of its trainers", "signal", signal)
		p.server.Leave(askedToGo, leaveDeadline)
		return
	}
	if kept, _ := p.server.Keeps(); kept && !p.asked && !p.leaving && p.isFirst(signal) { // its next script has not joined yet
		return
	}
	switch {
	case p.asked:
		slog.Warn("the trainer is killed: it was told to end before", "signal", signal)
		p.child.signal(syscall.SIGKILL)
	case p.leaving:
		slog.Warn(keepsNothing, "signal", signal)
		p.killed = time.After(fence.Grace)
	}
	p.asked = true
	if number, ok := signal.(syscall.Signal); ok {
		p.child.signal(number)
	}
	if p.leaving {
		p.server.GiveUp("a second signal ends it: " + signal.String())
	}
}

const loopback = "127.0.0.1"

// environment is where the agent is, and the world before there is a plan: of one.
func (p *parent) environment() ([]string, error) {
	port, err := freePort(loopback)
	return []string{
		"REKNIT_AGENT=" + p.server.Socket, "REKNIT_AGENT_IS_PARENT=1", // so that nobody waits for another agent there
		"REKNIT_UNCHANGED=", // of an agent around this one
		"RANK=0", "WORLD_SIZE=1", "LOCAL_RANK=0", "LOCAL_WORLD_SIZE=1",
		"MASTER_ADDR=" + loopback, "MASTER_PORT=" + port,
		"TORCHELASTIC_RESTART_COUNT=" + strconv.Itoa(p.started),
	}, err
}
