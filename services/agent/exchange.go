package agent

import (
	"context"
	"errors"
	"log/slog"
	"sync"

	"github.com/nats-io/nats.go"

	"github.com/reknit/reknit/events"
	"github.com/reknit/reknit/services/agent/channel"
	"github.com/reknit/reknit/services/agent/internal/precopy"
	"github.com/reknit/reknit/services/agent/internal/transfer"
	"github.com/reknit/reknit/services/agent/machine"
	"github.com/reknit/reknit/services/agent/seal"
)

// exchange is the units that move in a negotiation, and who moves them.
type exchange struct {
	what    *transfer.Exchange
	context context.Context // ends with the negotiation
	cancel  context.CancelFunc
	before  <-chan struct{} // closed when nothing of the exchange before is left in the node's store
	serving sync.WaitGroup
	retired chan struct{} // closed when nothing of this one is left there

	preSender   *precopy.Sender // nil where nothing is pre-copied
	preReceiver *precopy.Receiver
	sender      *transfer.Sender   // nil before all are paused
	receiver    *transfer.Receiver // nil where nothing is to be taken
}

// beginExchange returns the exchange of a negotiation. Called with the mutex held.
func (s *Session) beginExchange(what machine.Exchange) *exchange {
	if x := s.exchange; x != nil && x.what.Negotiation() == what.Negotiation && x.context.Err() == nil {
		return x
	}
	nothing := make(chan struct{})
	close(nothing)
	x := &exchange{
		what: transfer.NewExchange(s.transferNode(), what), before: nothing, retired: make(chan struct{}),
	}
	x.context, x.cancel = context.WithCancel(s.context)
	if s.exchange != nil {
		x.before = s.exchange.retired
	}
	s.exchange = x
	go func() {
		<-x.context.Done()
		x.serving.Wait()
		close(x.retired)
	}()
	return x
}

// transferNode is this node as exchanges need it.
func (s *Session) transferNode() transfer.Node {
	return transfer.Node{
		Context: s.context, Name: s.config.Node, Cluster: s.config.Cluster,
		HubURL: s.config.NATSURL, MemoryBytes: s.config.MemoryBytes,
		Bus: s.bus, Store: s.store, Identity: s.identity, Channels: s.channels,
	}
}

// preCopy begins to give and to take units while training goes on. Called with the mutex held.
func (s *Session) preCopy(task machine.PreCopy) {
	x := s.beginExchange(task.Exchange)
	x.preSender = precopy.NewSender(x.context, x.what, s.loop.done, x.before, s.wake)
	x.serving.Go(x.preSender.Serve)
	if len(x.what.Wanted()) == 0 {
		return
	}
	told := func(progress precopy.Progress) {
		s.finish(machine.CaughtUp{
			Task: task.Task, Step: progress.Step, Behind: progress.Behind,
			Bytes: progress.Bytes, Seconds: progress.Seconds, Reason: progress.Reason,
		})
	}
	x.preReceiver = precopy.NewReceiver(x.context, x.what, s.config.Job.Steps, s.loop.state.(PreCopier).Apply, told)
	go x.preReceiver.Run()
}

// dueCapture returns what the trainer's state is to give to those who pre-copy; nil for nothing. Called with the
// mutex held.
func (s *Session) dueCapture() turn {
	x, done := s.exchange, s.loop.done
	if x == nil || x.preSender == nil || x.context.Err() != nil || !x.preSender.Due(done) {
		return nil
	}
	s.machine.Capturing(true)
	return func(state State) {
		x.preSender.Capture(done, state.(PreCopier))
		s.mutex.Lock()
		defer s.mutex.Unlock()
		s.machine.Capturing(false)
	}
}

// open begins to give and to take units where all are paused. Called with the mutex held.
func (s *Session) open(what machine.Exchange) {
	x := s.beginExchange(what)
	x.sender = transfer.NewSender(x.context, x.what, x.before)
	x.serving.Go(x.sender.Serve)
	if len(x.what.Wanted()) > 0 {
		x.receiver = transfer.NewReceiver(x.context, x.what)
	}
}

// end ends the exchange. The memory of what is given is not served any more: the trainer's state may change it.
func (x *exchange) end() {
	x.cancel()
	if x.sender != nil {
		x.sender.Withdraw()
	}
}

// export gives a unit: one of a snapshot is read without the trainer's help. Called with the mutex held.
func (s *Session) export(task machine.Export) {
	x := s.exchange
	offered := func(offer events.Offer) {
		s.finish(machine.Exported{Task: task.Task, Digest: offer.Digest, Bytes: offer.Bytes, Parts: offer.Parts})
	}
	failed := func(err error) {
		s.finish(machine.Failed{Task: task.Task, Reason: err.Error(), Hub: errors.Is(err, transfer.ErrHub)})
	}
	if task.Snapshot != "" {
		go x.sender.Export(task.Unit, func() ([]byte, error) {
			return s.snapshots.Read(x.context, task.Step, task.Snapshot, task.Unit)
		}, offered, failed)
		return
	}
	s.queue(func(state State) {
		x.sender.Export(task.Unit, func() ([]byte, error) { return state.Export(task.Unit, task.Step) }, offered, failed)
	})
}

// fetch takes a unit, which the trainer's state imports at its boundary. Called with the mutex held.
func (s *Session) fetch(task machine.Fetch) {
	x, offer, state := s.exchange, task.Offers[0], s.loop.state
	fetching := s.fetching(offer.Unit)
	done := func(err error) {
		if err != nil {
			failed := machine.Failed{Task: task.Task, Reason: err.Error()}
			if disputed, ok := errors.AsType[*transfer.Disputed](err); ok {
				failed.Givers = disputed.Givers
			}
			s.finish(failed)
			return
		}
		s.finish(machine.Fetched{Task: task.Task, Seconds: x.receiver.Seconds(), Sources: x.received()})
	}
	go func() {
		fetching.Lock() // one that was given up may still be writing
		defer fetching.Unlock()
		s.untilCopied()
		if x.context.Err() != nil {
			return // nobody waits for the unit, and the memory for it may be gone
		}
		data, err := x.take(task, state)
		if err != nil {
			done(err)
			return
		}
		s.mutex.Lock()
		defer s.mutex.Unlock()
		s.queue(func(state State) {
			if x.context.Err() == nil {
				done(state.Import(offer.Unit, offer.Step, data))
			}
		})
		s.wake()
	}()
}

// fetching returns what keeps fetches of a unit apart. Called with the mutex held.
func (s *Session) fetching(unit int) *sync.Mutex {
	if s.fetches[unit] == nil {
		s.fetches[unit] = new(sync.Mutex)
	}
	return s.fetches[unit]
}

// take returns the verified bytes of a unit: those that were pre-copied, or else from all who offered it.
func (x *exchange) take(task machine.Fetch, state State) ([]byte, error) {
	offer := task.Offers[0]
	if x.preReceiver != nil {
		if data := x.preReceiver.Take(x.context, offer); data != nil {
			return data, nil
		}
	}
	lender, lends := state.(Lender)
	if !lends {
		return x.receiver.Fetch(task.Transfer, task.Offers, make([]byte, offer.Bytes))
	}
	into, err := lender.Lend(offer.Unit, offer.Bytes)
	if err != nil {
		return nil, err
	}
	return x.receiver.Fetch(task.Transfer, task.Offers, into)
}

// received tells what came from whom.
func (x *exchange) received() []events.Received {
	if x.preReceiver == nil {
		return x.receiver.Received()
	}
	return append(x.preReceiver.Received(), x.receiver.Received()...)
}

// answerViaHub hears that somebody cannot reach this node's store. The parts for that node go into the hub's store,
// too. The node asks again if it gets no answer.
func (s *Session) answerViaHub(message *nats.Msg) {
	var request events.ViaHub
	answer, err := s.requested(message, channel.ViaHub, &request)
	if err == nil {
		err = s.checkSpeaker(message, request.To)
	}
	var key seal.Key
	if err == nil {
		key, err = seal.Read(request.Key)
	}
	if err != nil {
		slog.Warn("request not understood", "subject", message.Subject, "error", err)
		return
	}
	s.mutex.Lock()
	var sender *transfer.Sender
	if s.exchange != nil && s.exchange.what.Negotiation() == request.Negotiation {
		sender = s.exchange.sender
	}
	s.mutex.Unlock()
	switch {
	case sender != nil:
		if err := sender.SendViaHub(request.To, key); err != nil {
			slog.Warn("request refused", "subject", message.Subject, "error", err)
			return
		}
		_ = message.Respond(answer(nil)) // else it asks again
	case key != nil:
		_ = message.Respond(answer([]byte(transfer.NotYet))) // else it is asked again later
	}
}

// answerPreCopy answers a receiver. A negotiation that is not heard of yet, or is over, has nothing: it asks again.
func (s *Session) answerPreCopy(message *nats.Msg) {
	var request events.PreCopyRequest
	seals, err := s.requested(message, channel.PreCopy, &request)
	if err == nil {
		err = s.checkSpeaker(message, request.To)
	}
	if err != nil {
		slog.Warn("request not understood", "subject", message.Subject, "error", err)
		return
	}
	s.mutex.Lock()
	answer := events.PreCopyReply{Newest: s.loop.done}
	var sender *precopy.Sender
	if s.exchange != nil && s.exchange.what.Negotiation() == request.Negotiation {
		sender = s.exchange.preSender
	}
	s.mutex.Unlock()
	if sender != nil {
		answer = sender.Answer(request)
	}
	respond(message, answer, seals)
}
