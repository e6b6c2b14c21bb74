package stranger

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"net"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
)

// Stranger is a node that takes part in training with nothing but a NATS connection. Its training is make-believe: a
// layer's state is a function of the layer and the step, so that every state it receives can be checked.
type Stranger struct {
	Node    string
	Cluster string
	Adopted func(generation, step uint64) // called when a plan takes over
	Left    func()                        // called when the cluster does without the node
	Refused func(reason string)

	job         map[string]any
	conn        *nats.Conn
	stream      nats.JetStreamContext
	objects     nats.ObjectStore
	plane       net.Listener
	incarnation string
	said        int
	layerBytes  int
	layerCount  int

	plan     *plan // in force
	trained  *plan // in force when the node was given up; nil: it was not
	next     *plan // committed, not yet in force
	opening  *opening
	schedule *schedule
	cause    string // id of the event that the schedule came in
	moved    bool
	offers   []offer
	hold     bool   // the step under way was abandoned
	promise  uint64 // not to be passed; zero for none
	leaving  bool
	step     uint64 // completed
	fresh    bool   // no step was completed under the plan in force yet
	beats    uint64
	peers    map[string]uint64 // completed steps of the others, from their pulses
}

// Times of a stranger: a step lasts as long as a fast trainer's, a pulse is sent with each and at least so often.
const (
	stepTime  = 10 * time.Millisecond
	pulseTime = 100 * time.Millisecond
	askTime   = 5 * time.Second
	lookTime  = time.Second
)

// Run takes part until ctx ends or the cluster does without the node. A caller that wants it to leave closes leave.
func (s *Stranger) Run(ctx context.Context, url string, job map[string]any, leave <-chan struct{}) error {
	messages, err := s.connect(url, job)
	if err != nil {
		return err
	}
	defer s.plane.Close()
	defer s.conn.Close()
	steps, pulses := time.NewTicker(stepTime), time.NewTicker(pulseTime)
	defer steps.Stop()
	defer pulses.Stop()
	for err == nil {
		select {
		case <-ctx.Done():
			return nil
		case message := <-messages:
			err = s.hear(message)
		case <-steps.C:
			err = s.train()
		case <-pulses.C:
			err = s.pulse()
		case <-leave:
			leave, s.leaving = nil, true
			err = s.say("membership.leave-requested", s.Node, "",
				map[string]any{"node": s.Node, "reason": "tired", "deadlineSeconds": 0})
		}
		if err == nil && s.leaving && s.plan == nil {
			return nil
		}
	}
	return err
}

// connect looks whether another has its name, and subscribes before it asks for a place, so that no answer is missed.
func (s *Stranger) connect(url string, job map[string]any) (messages chan *nats.Msg, err error) {
	if s.conn, err = nats.Connect(url); err != nil {
		return nil, err
	}
	if _, err := s.conn.Request("reknit.probe."+s.Cluster+"."+s.Node, []byte("{}"), lookTime); err == nil {
		return nil, fmt.Errorf("another process answers to the name %s", s.Node)
	}
	if s.stream, err = s.conn.JetStream(); err != nil {
		return nil, err
	}
	if s.objects, err = s.stream.ObjectStore("REKNIT_SHARDS_" + s.Cluster); err != nil {
		return nil, err
	}
	if s.plane, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
		return nil, err
	}
	go echo(s.plane)
	s.job, s.peers = job, map[string]uint64{}
	profile := job["layers"].([]map[string]any)
	s.layerCount, s.layerBytes = len(profile), profile[0]["parameterBytes"].(int)+profile[0]["optimizerBytes"].(int)
	messages = make(chan *nats.Msg, 1024)
	for _, subject := range []string{
		"reknit.plan." + s.Cluster + ".*", "reknit.event." + s.Cluster + ".negotiation.*.*",
		"reknit.event." + s.Cluster + ".shard.offered.*", "reknit.event." + s.Cluster + ".membership.refused." + s.Node,
		"reknit.pulse." + s.Cluster + ".*", "reknit.probe." + s.Cluster + "." + s.Node,
	} {
		if _, err := s.conn.ChanSubscribe(subject, messages); err != nil {
			return nil, err
		}
	}
	return messages, s.join()
}

// join asks for a place as a new incarnation.
func (s *Stranger) join() error {
	s.incarnation = strings.ToLower(rand.Text()[:12])
	return s.say("membership.join-requested", s.Node, "", map[string]any{
		"node": s.Node, "incarnation": s.incarnation, "address": s.plane.Addr().String(), "memoryBytes": 1 << 30, "job": s.job,
	})
}

// say publishes a CloudEvent and waits until the stream has it.
func (s *Stranger) say(kind, subject, cause string, data map[string]any) error {
	s.said++
	id := fmt.Sprintf("%s-%s-%d", s.Node, s.incarnation, s.said)
	event := map[string]any{
		"specversion": "1.0", "id": id, "type": "io.reknit." + kind + ".v1", "source": "/node/" + s.Node, "subject": subject,
		"cluster": s.Cluster, "time": time.Now().UTC(), "datacontenttype": "application/json", "data": data,
	}
	if cause != "" {
		event["cause"] = cause
	}
	content, err := json.Marshal(event)
	if err != nil {
		return err
	}
	message := nats.NewMsg("reknit.event." + s.Cluster + "." + kind + "." + subject)
	message.Data = content
	message.Header.Set("Nats-Msg-Id", id)
	ack, err := s.conn.RequestMsg(message, askTime)
	if err == nil && strings.Contains(string(ack.Data), `"error"`) {
		err = fmt.Errorf("%s: %s", kind, ack.Data)
	}
	return err
}

func (s *Stranger) pulse() error {
	s.beats++
	beat := pulse{Node: s.Node, Incarnation: s.incarnation, Number: s.beats, Step: s.step, StepSeconds: stepTime.Seconds()}
	if s.plan != nil {
		beat.Generation = s.plan.Generation
	} else {
		beat.Left = s.leaving // the last one
	}
	data, err := json.Marshal(beat)
	if err != nil {
		return err
	}
	return s.conn.Publish("reknit.pulse."+s.Cluster+"."+s.Node, data)
}
