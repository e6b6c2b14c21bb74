package agentd

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/reknit/reknit/events"
	"github.com/reknit/reknit/services/agent"
	"github.com/reknit/reknit/services/agent/fence"
	"github.com/reknit/reknit/services/agent/rest"
)

// unchanged is the parent of a script that knows nothing of the agent: it starts it with its rank in each plan.
type unchanged struct {
	config   Config
	input    *input
	standIn  *standIn
	command  []string
	most     int // restarts after failures
	restarts int // that are left
	signals  <-chan os.Signal

	place    place
	child    *child // nil: none runs
	exit     end    // of the last
	began    time.Time
	started  int              // times
	failed   bool             // the last by itself
	deadline <-chan time.Time // of the leave; nil: nobody asked for it
	ending   bool             // the script is to end for good, by a signal
	looks    <-chan time.Time // at what the script has used
	watch    rest.Watch
	rests    bool      // the others were told that it does
	stopped  time.Time // since when one of the script's processes is seen to be stopped; zero: none is
}

// errDone says that there is nothing left to do.
var errDone = errors.New("done")

// RunUnchanged runs a command that knows nothing of the agent, and starts it again at each plan that changes who trains:
// with its rank, the world's size and rank 0's address, as torchrun does. After a failure it is started again restarts
// times at most. It returns the status of the last. The first of the signals is a wish to leave the cluster.
func RunUnchanged(
	ctx context.Context, config Config, command []string, restarts int, signals <-chan os.Signal,
) (status int, err error) {
	runtime.LockOSThread() // the script ends with the thread that started it
	defer runtime.UnlockOSThread()
	if config.Node == "" {
		node, free := steadyNode(config.Cluster)
		defer free()
		config.Node = node
	}
	if err := config.complete(); err != nil {
		return 0, err
	}
	if useless := snapshotSettings(os.Environ()); len(useless) > 0 {
		slog.Warn("these settings have no effect with --unchanged: nothing writes snapshots of a script that knows nothing of its agent, "+
			"and goes on from its own checkpoint alone", "settings", useless)
	}
	u := &unchanged{
		input: inputOf(os.Stdin), config: config, command: command, most: restarts, restarts: restarts, signals: signals,
		standIn: beginStandIn(ctx, config, scriptOf(command)), looks: time.Tick(rest.LookEvery),
	}
	for err == nil {
		err = u.turn()
	}
	_ = u.halt() // there is nothing to come
	u.standIn.close(u.exit)
	switch {
	case !errors.Is(err, errDone):
		return 0, err
	case u.exit.state == nil:
		return 0, nil
	}
	return u.exit.status(), nil
}

// snapshotSettings returns the names of the variables of an environment that say where snapshots are written, or when.
func snapshotSettings(environment []string) (names []string) {
	for _, variable := range environment {
		if name, value, _ := strings.Cut(variable, "="); strings.HasPrefix(name, "REKNIT_SNAPSHOT_") && value != "" {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// turn takes the next thing that happens. Its error ends the script.
func (u *unchanged) turn() error {
	var ended chan end
	if u.child != nil {
		ended = u.child.ended
	}
	select {
	case next := <-u.standIn.places:
		return u.take(next)
	case exit := <-ended:
		return u.end(exit)
	case <-u.standIn.cut:
		return u.fence()
	case err := <-u.standIn.ended:
		if errors.Is(err, agent.ErrLeft) {
			slog.Info("the agent ends, and its script before", "because", err)
			_ = u.halt()            // likewise
			u.exit = end{}          // it ended because it was to
			u.standIn.watch.Close() // its peers need not suspect it, and need not wait for its script
			return errDone
		}
		if errors.Is(err, agent.ErrComplete) {
			slog.Info("the agent ends", "because", err)
			u.standIn.watch.Close()
			return errDone
		}
		return err
	case signal := <-u.signals:
		return u.ask(signal)
	case <-u.looks:
		u.look()
		return nil
	case <-u.deadline:
		return errDone
	}
}

// look tells the others where the script rests for longer than usual, or is stopped. Nobody ends it: it may wait for another's.
func (u *unchanged) look() {
	told := u.resting(time.Now())
	switch {
	case told != nil && !u.rests && told.Stopped:
		slog.Warn("the script is stopped, by SIGSTOP or a debugger, and the others wait for it", "pid", told.Pid,
			"do", "have it go on (kill -CONT PID), or kill it (kill -9 PID): all are started again, from their checkpoint")
	case told != nil && !u.rests:
		slog.Warn("the script has neither used a processor nor written for longer than usual: it hangs, or waits for another's",
			"pid", told.Pid, "for seconds", told.RestsSeconds, "usual", u.watch.Usual().String(),
			"do", "look at its log and at reknit status; kill it if it hangs, and all are started again, from their checkpoint")
	case told == nil && u.rests:
		slog.Info("the script rests no more")
	}
	if told != nil || u.rests {
		u.standIn.session.Scripted(told)
	}
	u.rests = told != nil
}

// resting is what the others are told of a script that rests; nil where it does not. One that is seen to be stopped twice rests.
func (u *unchanged) resting(now time.Time) *events.Script {
	if u.child == nil {
		u.stopped = time.Time{}
		return nil
	}
	used, stopped, isKnown := usedBy(u.child.pid())
	if !isKnown {
		return nil
	}
	rests := u.watch.Look(now, used)
	switch {
	case stopped == 0:
		u.stopped = time.Time{}
	case u.stopped.IsZero():
		u.stopped = now
	default:
		rests = max(rests, now.Sub(u.stopped))
	}
	if rests == 0 {
		return nil
	}
	return &events.Script{
		RestsSeconds: rests.Seconds(), UsualSeconds: u.watch.Usual().Seconds(), Pid: cmp.Or(stopped, u.child.pid()), Stopped: stopped > 0,
	}
}

// take ends the script, and starts it in its next place. One that has ended well is started again, too: the others' were
// stopped before their end.
func (u *unchanged) take(next place) error {
	if u.child != nil {
		slog.Info("another plan: the script is stopped")
	}
	if err := u.halt(); err != nil || len(next.crew) == 0 {
		return err
	}
	if u.failed && slices.Equal(next.crew, u.place.crew) { // else somebody's loss explains it
		if u.restarts == 0 {
			return errDone
		}
		u.restarts--
	}
	u.place, u.failed, u.began = next, false, time.Now()
	var err error
	u.child, err = begin(u.command, u.environment(), u.input)
	if err == nil {
		u.watch.Begin()
		u.started++
		slog.Info("the script runs", "pid", u.child.pid(), "rank", next.rank, "world", len(next.crew),
			"master", next.host+":"+next.port, "restarts left", u.restarts)
	}
	return err
}

// fence ends a script that the others may soon start again elsewhere. Should they have waited, all are started again.
func (u *unchanged) fence() error {
	if u.child == nil {
		return nil
	}
	slog.Warn("the hub does not hear this node: its script is stopped before the others go on without it", "after", unheardFor.String())
	done := u.halt()
	u.standIn.breaks(failure{u.place.generation, "the script was stopped, for the hub did not hear its node"})
	return done
}

// halt ends the script, if it runs: with SIGTERM, and with SIGKILL where its grace is over or another signal comes after the one that
// ends it. It returns errDone where nothing is to come after it.
func (u *unchanged) halt() (done error) {
	if u.child == nil {
		return nil
	}
	u.child.signal(syscall.SIGTERM)
	killed := time.After(fence.Grace)
	for u.child != nil {
		select {
		case u.exit = <-u.child.ended:
			u.child = nil
		case signal := <-u.signals:
			if u.ending {
				slog.Warn("the script is killed: it was told to end before", "signal", signal)
				u.child.signal(syscall.SIGKILL)
			}
			done = u.ask(signal)
		case <-killed:
			slog.Warn("the script has not ended upon SIGTERM, and is killed", "pid", u.child.pid(), "after", fence.Grace.String())
			u.child.signal(syscall.SIGKILL)
		}
	}
	return done
}

// end takes the end of a script that nobody stopped.
func (u *unchanged) end(exit end) error {
	u.exit, u.child = exit, nil
	switch {
	case exit.err != nil:
		return exit.err
	case exit.status() == 0 && u.deadline != nil:
		return errDone
	case exit.status() == 0:
		slog.Info("the script has ended well; its agent stays until all others' have, in case it is to be started again, " +
			"or until it is asked to end")
		u.standIn.made.Store(u.place.generation)
		return nil
	}
	if time.Since(u.began) > soundAfter {
		u.restarts = u.most
	}
	u.failed = true
	u.standIn.breaks(failure{u.place.generation, fmt.Sprintf("the script ended: %v", exit.state)})
	return nil
}

// ask has the node leave the cluster. The script of a node that is asked again or is alone is to end at once.
func (u *unchanged) ask(signal os.Signal) error {
	if u.deadline != nil || len(u.place.crew) < 2 {
		if !u.ending && u.child != nil {
			slog.Warn("the script is told to end (SIGTERM), and has "+fence.Grace.String()+" to save; another signal kills it",
				"signal", signal)
		}
		u.ending = true
		return errDone
	}
	slog.Warn("the script ends once the cluster does without it, after "+leaveDeadline.String()+" at most; a second signal tells it to "+
		"end at once, and a third kills it", "signal", signal)
	u.deadline = time.After(leaveDeadline)
	u.standIn.session.Leave(askedToGo, leaveDeadline)
	return nil
}

// environment is what torchrun would set, and a word for reknit.py: a script that joins is not to be started so.
func (u *unchanged) environment() []string {
	rank, world := strconv.Itoa(u.place.rank), strconv.Itoa(len(u.place.crew))
	return []string{
		"REKNIT_UNCHANGED=1", "REKNIT_GENERATION=" + strconv.FormatUint(u.place.generation, 10),
		"RANK=" + rank, "WORLD_SIZE=" + world, "LOCAL_RANK=0", "LOCAL_WORLD_SIZE=1",
		"GROUP_RANK=" + rank, "GROUP_WORLD_SIZE=" + world, "ROLE_RANK=" + rank, "ROLE_WORLD_SIZE=" + world,
		"MASTER_ADDR=" + u.place.host, "MASTER_PORT=" + u.place.port,
		"TORCHELASTIC_RUN_ID=" + u.config.Cluster,
		"TORCHELASTIC_RESTART_COUNT=" + strconv.Itoa(u.started), "TORCHELASTIC_MAX_RESTARTS=" + strconv.Itoa(u.most),
	}
}
