package local

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/reknit/reknit/events"
	"github.com/reknit/reknit/services/agent"
)

const (
	mostBodyBytes = 1 << 20
	mostKeyBytes  = 256
	mostWaiting   = 64              // calls of a trainer for values that are not there yet
	mostWait      = time.Hour       // for a value: no longer than it lives
	openTimeout   = 5 * time.Second // for a trainer that joined to open its session stream
)

// failure is an answer that is no success.
type failure struct {
	status int
	What   string `json:"error"`
	Fix    string `json:"fix"`
}

func (f failure) Error() string { return f.What }

// routes maps calls to what answers them.
func (s *Server) routes() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /v1/join", answering(s.join))
	for pattern, call := range map[string]func(*trainer, *http.Request) (any, error){
		"POST /v1/next":  (*trainer).callNext,
		"POST /v1/leave": (*trainer).callLeave,
		"POST /v1/fail":  (*trainer).callFail,
		"GET /v1/state":  (*trainer).callState,
	} {
		mux.HandleFunc(pattern, answering(s.inSession(call, http.StatusNotFound)))
	}
	for method, call := range map[string]func(*trainer, *http.Request) (any, error){
		"PUT": (*trainer).callSet, "GET": (*trainer).callGet, "POST": (*trainer).callAdd,
	} { // not found says that a key is not set
		mux.HandleFunc(method+" /v1/store/{generation}/{key}", answering(s.inSession(call, http.StatusGone)))
	}
	mux.HandleFunc("GET /v1/session", s.stream)
	mux.HandleFunc("GET /v1/announce", s.announce)
	mux.HandleFunc("/", answering(func(request *http.Request) (any, error) {
		return nil, failure{http.StatusNotFound, "no call " + request.Method + " " + request.URL.Path,
			"the calls are in services/agent/local/README.md"}
	}))
	return mux
}

// answering writes what a call returns: bytes as they are, anything else as JSON.
func answering(call func(*http.Request) (any, error)) http.HandlerFunc {
	return func(response http.ResponseWriter, request *http.Request) {
		request.Body = http.MaxBytesReader(response, request.Body, mostBodyBytes)
		answer, err := call(request)
		switch answer := answer.(type) {
		case nil:
		case []byte:
			if err == nil {
				_, _ = response.Write(answer) // who is gone needs no answer
			}
		default:
			if err == nil {
				write(response, http.StatusOK, answer)
			}
		}
		if err != nil {
			failed := failureOf(err)
			write(response, failed.status, failed)
		}
	}
}

func write(response http.ResponseWriter, status int, answer any) {
	response.Header().Set("Content-Type", "application/json")
	response.WriteHeader(status)
	if err := json.NewEncoder(response).Encode(answer); err != nil {
		slog.Debug("a trainer did not take its answer", "error", err)
	}
}

// failureOf tells what an error is to a trainer.
func failureOf(err error) failure {
	var known failure
	var order errOrder
	var tooLarge *http.MaxBytesError
	var gone exit
	switch {
	case errors.As(err, &known):
		return known
	case errors.As(err, &gone), errors.Is(err, errClose): // it lives, or would not hear this
		return failure{http.StatusNotFound, err.Error(), errNoSession.Fix}
	case errors.As(err, &order):
		return failure{http.StatusConflict, order.what, order.fix}
	case errors.As(err, &tooLarge):
		return failure{http.StatusRequestEntityTooLarge, fmt.Sprintf("a body over %d bytes", tooLarge.Limit),
			"put bulk into the units' files"}
	case errors.Is(err, agent.ErrLeft):
		return failure{http.StatusGone, err.Error(), "end: the cluster does without this node"}
	case errors.Is(err, agent.ErrComplete):
		return failure{http.StatusGone, err.Error(), "end: the model is trained"}
	case errors.Is(err, agent.ErrOtherJob) && strings.Contains(err.Error(), events.OtherSteps): // a plain reset would lose what was trained
		return failure{http.StatusServiceUnavailable, err.Error(),
			"start it with as many steps as is expected; to have the job end after fewer or more, end the others, run " +
				"reknit cluster reset --from-snapshot where snapshots are written (else what was trained is given up), and start all with as many"}
	case errors.Is(err, agent.ErrOtherJob):
		return failure{http.StatusServiceUnavailable, err.Error(),
			"start it with what is expected; to train another job here, end the others and run reknit cluster reset; beside it: " +
				"reknit up --cluster OTHER --dir OTHER-data --port 0"}
	case errors.Is(err, agent.ErrNoValue):
		return failure{http.StatusNotFound, err.Error(), "ask with wait=SECONDS, or set it first"}
	}
	return failure{http.StatusServiceUnavailable, err.Error(), "mend what it names, and start the script again"}
}

// inSession finds the trainer that a call names; without says the status of a call that names none.
func (s *Server) inSession(
	call func(*trainer, *http.Request) (any, error), without int,
) func(*http.Request) (any, error) {
	return func(request *http.Request) (any, error) {
		t := s.trainer(request.URL.Query().Get("session"))
		if t == nil {
			return nil, failure{without, errNoSession.What, errNoSession.Fix}
		}
		return call(t, request)
	}
}

var errNoSession = failure{
	http.StatusNotFound, "no such session", "join, and name the session that it returned: ?session=…",
}

// read reads a body, whose fields must all be known.
func read(request *http.Request, into any) error {
	decoder := json.NewDecoder(request.Body)
	decoder.DisallowUnknownFields()
	err := decoder.Decode(into)
	var tooLarge *http.MaxBytesError
	if err == nil || errors.As(err, &tooLarge) {
		return err
	}
	return failure{http.StatusBadRequest, "body: " + events.Named("body", err).Error(), "the fields are in services/agent/local/README.md"}
}

func (s *Server) join(request *http.Request) (any, error) {
	var joining Joining
	if err := read(request, &joining); err != nil {
		return nil, err
	}
	if joining.Node == "" {
		joining.Node = s.config.Node
	}
	job, err := joining.complete(s.config.Snapshots.MemoryCopies())
	if err == nil {
		err = (&events.Join{
			Node: joining.Node, Incarnation: "any", Address: "any", MemoryBytes: joining.MemoryBytes,
			Samples: joining.Samples, Job: job,
		}).Validate()
	}
	if err != nil {
		s.mutex.Lock()
		s.refused = err
		s.mutex.Unlock()
		return nil, failure{http.StatusBadRequest, err.Error(), "the fields are in services/agent/local/README.md"}
	}
	session, t, err := s.add(request.Context(), joining, job)
	if err != nil {
		return nil, err
	}
	defer context.AfterFunc(request.Context(), func() { t.end(exit{how: "it ended while it joined", code: -1}) })()
	time.AfterFunc(openTimeout, func() {
		select {
		case <-t.heard:
		default:
			t.end(exit{how: "it never opened its session", code: -1})
		}
	})
	return Joined{Session: session, Node: t.node, Dir: t.dir}, nil
}

func (t *trainer) callNext(request *http.Request) (any, error) {
	var report Report
	if err := read(request, &report); err != nil {
		return nil, err
	}
	if err := report.validate(); err != nil {
		return nil, failure{http.StatusBadRequest, err.Error(), "measure it, or leave it out"}
	}
	return t.turns.next(request.Context(), report)
}

// stream tells a trainer of aborts, and why training waits, for as long as both live.
func (s *Server) stream(response http.ResponseWriter, request *http.Request) {
	t := s.trainer(request.URL.Query().Get("session"))
	if t == nil {
		write(response, http.StatusNotFound, errNoSession)
		return
	}
	if !t.open() {
		write(response, http.StatusConflict, failure{What: "the session is open already", Fix: "open it once"})
		return
	}
	defer s.hungUp(t)
	go t.attend(callerOf(request.Context()))
	controller := http.NewResponseController(response)
	lines := json.NewEncoder(response)
	say := func(line any) bool { return lines.Encode(line) == nil && controller.Flush() == nil }
	for open := say(map[string]string{"session": request.URL.Query().Get("session")}); open; {
		select {
		case abort := <-t.aborts:
			open = say(abort)
		case waits := <-t.waits:
			open = say(waits)
		case late := <-t.lates:
			open = say(late)
		case leaving := <-t.leavings:
			open = say(leaving)
		case <-request.Context().Done():
			return
		case <-t.ended.Done():
			return
		}
	}
}

// open reports whether nobody has opened the session before.
func (t *trainer) open() bool {
	t.mutex.Lock()
	defer t.mutex.Unlock()
	if t.attended {
		return false
	}
	t.attended = true
	close(t.heard)
	return true
}

func (t *trainer) callLeave(request *http.Request) (any, error) {
	var wish leave
	if err := read(request, &wish); err != nil {
		return nil, err
	}
	if wish.DeadlineSeconds < 0 {
		return nil, failure{http.StatusBadRequest, "deadlineSeconds: expected 0 or more", "0 is no deadline"}
	}
	t.session.Leave(wish.Reason, seconds(wish.DeadlineSeconds))
	return struct{}{}, nil
}

// callFail ends a trainer whose script ends by an error, which says more than the status of its process.
func (t *trainer) callFail(request *http.Request) (any, error) {
	var failed fail
	if err := read(request, &failed); err != nil {
		return nil, err
	}
	if failed.Reason == "" {
		return nil, failure{http.StatusBadRequest, `reason: expected the error, got ""`, "say what ends the script"}
	}
	t.end(exit{how: events.Brief(failed.Reason), code: 1, inStep: failed.InStep})
	return struct{}{}, nil
}

// key is a key of the generation in force.
func (t *trainer) key(request *http.Request) (rendezvous *agent.Rendezvous, key string, err error) {
	key = request.PathValue("key")
	generation, err := strconv.ParseUint(request.PathValue("generation"), 10, 64)
	if err != nil || key == "" || len(key) > mostKeyBytes {
		return nil, "", failure{http.StatusBadRequest, "expected /v1/store/<generation>/<key of 1 to 256 bytes>",
			"mend the path"}
	}
	t.mutex.Lock()
	plan, rendezvous := t.plan, t.rendezvous
	t.mutex.Unlock()
	switch {
	case plan == nil || generation > plan.Generation:
		return nil, "", errOrder{fmt.Sprintf("generation %d is not in force here", generation),
			"use the generation of the step under way"}
	case generation < plan.Generation:
		return nil, "", failure{http.StatusGone, fmt.Sprintf("generation %d is over", generation),
			"call next: there is a newer plan"}
	case rendezvous == nil:
		rendezvous, err = t.meet(request.Context(), generation)
	}
	return rendezvous, key, err
}

// meet opens the rendezvous of a generation. The hub may take its time: an abort does not wait for it.
func (t *trainer) meet(ctx context.Context, generation uint64) (*agent.Rendezvous, error) {
	rendezvous, err := t.session.Rendezvous(ctx, generation)
	if err != nil {
		return nil, err
	}
	t.mutex.Lock()
	defer t.mutex.Unlock()
	if t.plan.Generation == generation {
		t.rendezvous = rendezvous
	}
	return rendezvous, nil
}

func (t *trainer) callSet(request *http.Request) (any, error) {
	rendezvous, key, err := t.key(request)
	if err != nil {
		return nil, err
	}
	value, err := io.ReadAll(request.Body)
	if err != nil {
		return nil, err
	}
	if len(value) > agent.MostRendezvousBytes {
		return nil, &http.MaxBytesError{Limit: agent.MostRendezvousBytes}
	}
	return struct{}{}, rendezvous.Set(request.Context(), key, value)
}

func (t *trainer) callAdd(request *http.Request) (any, error) {
	rendezvous, key, err := t.key(request)
	if err != nil {
		return nil, err
	}
	number, err := strconv.ParseInt(request.URL.Query().Get("add"), 10, 64)
	if err != nil {
		return nil, failure{http.StatusBadRequest, "add: expected a number", "for example add=1"}
	}
	sum, err := rendezvous.Add(request.Context(), key, number)
	return strconv.AppendInt(nil, sum, 10), err
}

func (t *trainer) callGet(request *http.Request) (any, error) {
	rendezvous, key, err := t.key(request)
	if err != nil {
		return nil, err
	}
	wait, err := strconv.ParseFloat(cmp.Or(request.URL.Query().Get("wait"), "0"), 64)
	if err != nil || !(wait >= 0 && wait <= mostWait.Seconds()) {
		return nil, failure{http.StatusBadRequest, fmt.Sprintf("wait: expected 0 to %v seconds", mostWait.Seconds()),
			"for example wait=60"}
	}
	if wait == 0 {
		return rendezvous.Get(request.Context(), key)
	}
	select {
	case t.waiting <- struct{}{}:
		defer func() { <-t.waiting }()
	default:
		return nil, failure{http.StatusServiceUnavailable, fmt.Sprintf("%d calls wait already", mostWaiting),
			"wait for fewer keys at a time"}
	}
	return t.awaitKey(request.Context(), rendezvous, key, seconds(wait))
}

// awaitKey waits until the key is set, the time is over, the step is given up or the session ends.
func (t *trainer) awaitKey(
	ctx context.Context, rendezvous *agent.Rendezvous, key string, wait time.Duration,
) (any, error) {
	ctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	t.mutex.Lock()
	step := t.stepping
	t.mutex.Unlock()
	defer context.AfterFunc(step, cancel)()
	value, err := rendezvous.Await(ctx, key)
	switch {
	case err == nil:
		return value, nil
	case step.Err() != nil:
		return nil, failure{http.StatusGone, "the step was given up", "call next: there will be a newer plan"}
	case errors.Is(err, context.DeadlineExceeded):
		return nil, agent.ErrNoValue
	}
	return nil, err
}
