package stream_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/reknit/reknit/events"
	"github.com/reknit/reknit/shared/embedded"
	"github.com/reknit/reknit/tests/simulation/stream"
)

const (
	never    = time.Hour // an acknowledgement is not waited for that long in a test
	patience = time.Second
)

// Streams as an installation has them, but small enough to be filled.
var (
	facts = events.Stream{Name: "FACTS", MaxBytes: 4000, Newest: 9, Dedupe: never}
	plans = events.Stream{Name: "PLANS", WriteOnce: true, MaxBytes: 2000, Dedupe: never}

	subjects = map[string][]string{facts.Name: {"fact.>"}, plans.Name: {"plan.>"}}
)

// pair is the model and the real server, side by side.
type pair struct {
	*testing.T
	ctx      context.Context
	random   *rand.Rand
	model    *stream.Server
	js       jetstream.JetStream
	bucket   jetstream.KeyValue
	readers  map[string]*stream.Consumer // by the reply subject of a delivery
	moved    map[string]bool             // readers that were moved
	held     []holding
	story    []string
	replicas int
}

// holding is one delivery, of which both keep theirs.
type holding struct {
	model *stream.Delivery
	real  jetstream.Msg
}

func newPair(t *testing.T, seed uint64, url string) *pair {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	p := &pair{
		T: t, ctx: ctx, random: rand.New(rand.NewPCG(seed, 0)), replicas: 1,
		model:   stream.NewServer(facts, plans, stream.Limits{}, false),
		readers: map[string]*stream.Consumer{}, moved: map[string]bool{},
	}
	p.connect(url)
	return p
}

func (p *pair) connect(url string) {
	conn, err := nats.Connect(url)
	if err != nil {
		p.Fatal(err)
	}
	p.Cleanup(conn.Close)
	if p.js, err = jetstream.New(conn); err != nil {
		p.Fatal(err)
	}
}

// create makes the real streams as shared/bus does.
func (p *pair) create() {
	for _, wanted := range []events.Stream{facts, plans} {
		config := jetstream.StreamConfig{
			Name: wanted.Name, Subjects: subjects[wanted.Name], Storage: jetstream.FileStorage, Replicas: p.replicas,
			MaxBytes: wanted.MaxBytes, Discard: jetstream.DiscardNew, Duplicates: wanted.Dedupe,
			MaxMsgsPerSubject: int64(wanted.Newest), DenyDelete: true, DenyPurge: true,
		}
		if wanted.WriteOnce {
			config.MaxMsgsPerSubject, config.DiscardNewPerSubject = 1, true
		}
		if _, err := p.js.CreateStream(p.ctx, config); err != nil {
			p.Fatal(err)
		}
	}
	var err error
	p.bucket, err = p.js.CreateKeyValue(p.ctx, jetstream.KeyValueConfig{Bucket: "MEMORY", Replicas: p.replicas})
	if err != nil {
		p.Fatal(err)
	}
}

// pick returns one of the names that begin with a prefix.
func (p *pair) pick(prefix string, count int) string { return fmt.Sprint(prefix, p.random.IntN(count)) }

func (p *pair) same(what, model, real string) {
	p.Helper()
	p.story = append(p.story, fmt.Sprintf("%s: %s", what, real))
	if model != real {
		for _, line := range p.story {
			p.Log(line)
		}
		p.Fatalf("%s: the server says %q, the model %q", what, real, model)
	}
}

// answer is an acknowledgement or an error, in one word.
func answer(sequence uint64, duplicate bool, err error) string {
	var api *jetstream.APIError
	switch {
	case errors.Is(err, stream.ErrNoAnswer) || errors.Is(err, context.DeadlineExceeded):
		return "no answer"
	case errors.As(err, &api):
		return fmt.Sprintf("%d/%d", api.Code, api.ErrorCode)
	case err != nil:
		return err.Error()
	case duplicate:
		return fmt.Sprintf("duplicate of %d", sequence)
	}
	return fmt.Sprintf("stored at %d", sequence)
}

// size is what a message takes in the server's file store: its record, and its headers if it has any.
func size(message *nats.Msg) int64 {
	const record, headers = 30, len("NATS/1.0\r\n\r\n") + 4
	bytes := record + len(message.Subject) + len(message.Data)
	if len(message.Header) > 0 {
		bytes += headers
	}
	for name, values := range message.Header {
		bytes += len(name) + len(": ") + len(values[0]) + len("\r\n")
	}
	return int64(bytes)
}

func (p *pair) publish(to *stream.Stream, subject, id string, expect *stream.Expect, bytes int) {
	message := &nats.Msg{Subject: subject, Header: nats.Header{"Nats-Msg-Id": {id}}, Data: make([]byte, bytes)}
	what := fmt.Sprintf("publish %s on %s", id, subject)
	if expect != nil {
		message.Header.Set("Nats-Expected-Last-Subject-Sequence", fmt.Sprint(expect.Sequence))
		message.Header.Set("Nats-Expected-Last-Subject-Sequence-Subject", expect.Subject)
		what += fmt.Sprintf(" if %s is at %d", expect.Subject, expect.Sequence)
	}
	said := stream.Message{Subject: subject, ID: id, Bytes: size(message), Data: id}
	ack, err := to.Publish(time.Now(), said, expect, stream.Answered)
	modelled := answer(ack.Sequence, ack.Duplicate, err)
	limit := time.Minute
	if modelled == "no answer" {
		limit = patience
	}
	ctx, cancel := context.WithTimeout(p.ctx, limit)
	defer cancel()
	real, err := p.js.PublishMsg(ctx, message)
	if err != nil {
		real = &jetstream.PubAck{}
	}
	p.same(what, modelled, answer(real.Sequence, real.Duplicate, err))
}

func (p *pair) publishFact() {
	var expect *stream.Expect
	if p.random.IntN(2) == 0 {
		expect = &stream.Expect{Subject: p.pick("fact.", 4)}
		if last, err := p.model.Events.Last(expect.Subject, stream.Answered); err == nil && p.random.IntN(4) > 0 {
			expect.Sequence = last.Sequence
		}
	}
	p.publish(p.model.Events, p.pick("fact.", 4), p.pick("id", 60), expect, p.random.IntN(40))
}

func (p *pair) publishPlan() {
	p.publish(p.model.Plans, p.pick("plan.", 20), p.pick("id", 40), nil, p.random.IntN(200))
}

// log is the real stream of facts.
func (p *pair) log() jetstream.Stream {
	log, err := p.js.Stream(p.ctx, facts.Name)
	if err != nil {
		p.Fatal(err)
	}
	return log
}

// led asks until the stream has a leader: on a busy machine it may have none for a while.
func (p *pair) led(ask func() (*jetstream.RawStreamMsg, error)) (real *jetstream.RawStreamMsg, err error) {
	for {
		var refused *jetstream.APIError
		if real, err = ask(); !errors.As(err, &refused) || refused.Code != 503 || p.ctx.Err() != nil {
			return real, err
		}
		time.Sleep(50 * time.Millisecond)
	}
}

func (p *pair) get(sequence uint64) {
	modelled, err := p.model.Events.Get(sequence, stream.Answered)
	real, realErr := p.led(func() (*jetstream.RawStreamMsg, error) { return p.log().GetMsg(p.ctx, sequence) })
	p.same(fmt.Sprint("get ", sequence), found(modelled, err), realFound(real, realErr))
}

func (p *pair) read() {
	p.get(1 + p.random.Uint64N(40))
	subject := "fact." + []string{"0", "1", "*", "9"}[p.random.IntN(4)]
	modelled, err := p.model.Events.Last(subject, stream.Answered)
	real, realErr := p.led(func() (*jetstream.RawStreamMsg, error) { return p.log().GetLastMsgForSubject(p.ctx, subject) })
	p.same("last on "+subject, found(modelled, err), realFound(real, realErr))
}

func found(message stream.Message, err error) string {
	if err != nil {
		return "none"
	}
	return fmt.Sprintf("%s %s at %d", message.Subject, message.ID, message.Sequence)
}

func realFound(message *jetstream.RawStreamMsg, err error) string {
	if errors.Is(err, jetstream.ErrMsgNotFound) {
		return "none"
	}
	if err != nil {
		return err.Error()
	}
	return fmt.Sprintf("%s %s at %d", message.Subject, message.Header.Get("Nats-Msg-Id"), message.Sequence)
}

func (p *pair) remember() {
	key, revision := p.pick("key", 2), p.random.Uint64N(3)
	if there, err := p.model.Snapshots.Get(key, stream.Answered); err == nil && p.random.IntN(3) > 0 {
		revision = there.Sequence
	}
	modelled, err := p.model.Snapshots.Update(time.Now(), key, 10, key, revision, stream.Answered)
	real, realErr := p.bucket.Update(p.ctx, key, []byte(key), revision)
	p.same(fmt.Sprintf("update %s of revision %d", key, revision), revised(modelled, err), revised(real, realErr))
	there, err := p.model.Snapshots.Get(key, stream.Answered)
	entry, realErr := p.bucket.Get(p.ctx, key)
	if realErr != nil {
		p.same("get "+key, revised(there.Sequence, err), revised(0, realErr))
		return
	}
	p.same("get "+key, revised(there.Sequence, err), revised(entry.Revision(), nil))
}

func revised(revision uint64, err error) string {
	switch {
	case errors.Is(err, jetstream.ErrKeyRevisionMismatch):
		return "exists"
	case errors.Is(err, jetstream.ErrKeyNotFound):
		return "none"
	}
	return answer(revision, false, err)
}

func TestTheModelAnswersAsTheServerDoes(t *testing.T) {
	for seed := range uint64(12) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			server, err := embedded.Start(embedded.Config{StoreDir: t.TempDir()})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(server.Shutdown)
			p := newPair(t, seed, server.URL())
			p.create()
			operations := []func(){
				p.publishFact, p.publishFact, p.publishFact, p.publishPlan, p.read, p.remember,
				p.next, p.next, p.next, p.settle, p.settle, p.settle, p.reset, p.reach, p.reach,
			}
			for range 250 {
				operations[p.random.IntN(len(operations))]()
			}
			p.follow()
		})
	}
}
