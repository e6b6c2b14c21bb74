package doctor

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/reknit/reknit/events"
	"github.com/reknit/reknit/services/reknit/tell"
	"github.com/reknit/reknit/shared/bus"
	"github.com/reknit/reknit/shared/embedded"
)

// clinic is an installation of which the test is everybody but the server.
type clinic struct {
	t   *testing.T
	bus *bus.Bus
	url string

	stop  func()                       // the server
	said  int                          // events
	pulse atomic.Pointer[events.Pulse] // that n1 sends now and then; nil: none
}

// newClinic starts a server with JetStream, on which spoil does what it does before there are streams.
func newClinic(t *testing.T, spoil func(jetstream.JetStream)) *clinic {
	t.Helper()
	started, err := embedded.Start(embedded.Config{StoreDir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(started.Shutdown)
	b, err := bus.Connect(t.Context(), bus.Config{URL: started.URL(), Name: "test", Cluster: "c"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.Close)
	spoil(b.JetStream())
	if err := b.Provision(t.Context()); err != nil {
		t.Fatal(err)
	}
	return &clinic{t: t, bus: b, url: started.URL(), stop: started.Shutdown}
}

// sound has all services answer, and n1 train where others reach it.
func (c *clinic) sound() {
	c.t.Helper()
	c.serves()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(func() { listener.Close() })
	c.plan(listener.Addr().String())
	c.answer(events.ProbeSubject("c", "n1"), func(ask *nats.Msg) []byte { return dialAs(ask, "n1") })
	c.beats(events.Pulse{Loss: 1, StillSeconds: 0.1})
}

// dialAs dials whom it is asked to, as an agent would that can measure nothing there.
func dialAs(ask *nats.Msg, node string) []byte {
	var probe events.Probe
	answer := events.ProbeAnswer{Node: node, Incarnation: "i", Error: "no greeting"}
	if json.Unmarshal(ask.Data, &probe) == nil {
		conn, err := net.DialTimeout("tcp", probe.Address, time.Second)
		if err != nil {
			answer.Error, answer.Finding = err.Error(), events.FoundRefused
		} else {
			conn.Read(make([]byte, 1)) // until it is accepted, and closed
		}
	}
	data, _ := json.Marshal(answer)
	return data
}

func (c *clinic) answer(subject string, answer func(*nats.Msg) []byte) {
	c.t.Helper()
	if _, err := c.bus.Conn().Subscribe(subject, func(ask *nats.Msg) { ask.Respond(answer(ask)) }); err != nil {
		c.t.Fatal(err)
	}
	if err := c.bus.Conn().Flush(); err != nil {
		c.t.Fatal(err)
	}
}

// plan has n1 train, at an address.
func (c *clinic) plan(address string) {
	c.t.Helper()
	plan := &events.Plan{
		Cluster: "c", Generation: 1, Policy: "repipeline", Data: events.Data{GlobalBatch: 1, MicroBatch: 1},
		Nodes:     []events.Member{{Node: "n1", Incarnation: "i", Address: address}},
		Pipelines: []events.Pipeline{{MicroBatches: 1, Stages: []events.Stage{{Node: "n1", Layers: events.Range{End: 1}}}}},
	}
	c.say("/negotiator", events.PlanCommitted, "1", plan)
}

// say adds an event to the log.
func (c *clinic) say(source string, kind events.Kind, subject string, payload events.Payload) {
	c.t.Helper()
	c.said++
	speaker := events.Speaker{Source: source, Cluster: "c"}
	if _, err := c.bus.Publish(c.t.Context(), speaker.First(time.Now(), fmt.Sprint(c.said), kind, subject, payload)); err != nil {
		c.t.Fatal(err)
	}
}

func (c *clinic) commit(generation uint64) {
	c.t.Helper()
	id := fmt.Sprint("g", generation)
	c.say("/negotiator", events.Committed, id, &events.Commitment{Negotiation: id, Generation: generation, PlanDigest: events.Digest(nil)})
}

// diverge has the restorer find that n1 and n2 differ in a unit, and which digest is right; empty: it cannot tell.
func (c *clinic) diverge(generation uint64, unit int, right string) {
	c.t.Helper()
	c.say("/restorer", events.ReplicaDiverged, fmt.Sprint("unit-", unit), &events.Divergence{
		Generation: generation, Step: 100, Unit: unit, Digest: right,
		Replicas: []events.Replica{{Node: "n1", Digest: events.Digest([]byte("one"))}, {Node: "n2", Digest: events.Digest([]byte("another"))}},
	})
}

func TestCopiesThatDifferedUnderAnOlderPlanAreNoFinding(t *testing.T) {
	c := newClinic(t, func(jetstream.JetStream) {})
	c.sound()
	c.commit(7)
	c.diverge(7, 0, "")
	c.commit(8)
	c.diverge(7, 1, "") // told late
	if findings, err := examined(t, c.url); err != nil || len(findings) > 0 {
		t.Errorf("%v, %q", err, findings)
	}
}

// examined runs the command, and returns what is not well, a line "check: says" each.
func examined(t *testing.T, url string) (findings []string, err error) {
	t.Helper()
	return examinedIn(t, url, "c")
}

// examinedIn names a cluster, or none.
func examinedIn(t *testing.T, url, cluster string) (findings []string, err error) {
	t.Helper()
	all, err := allIn(t, url, cluster)
	for _, finding := range all {
		ofMachine := finding.Check == "disk" && finding.State == warning // its disk is nearly full
		if finding.State != fine && finding.State != unseen && !ofMachine {
			findings = append(findings, fmt.Sprintf("%s %s: %s", finding.Check, finding.State, finding.Says))
		}
		if (finding.State == wrong || finding.State == warning) && finding.Do == "" {
			t.Errorf("it does not say what to do: %+v", finding)
		}
	}
	return findings, err
}

// allIn returns all that the command prints.
func allIn(t *testing.T, url, cluster string) (all []Finding, err error) {
	t.Helper()
	var printed strings.Builder
	command := Command()
	command.SetArgs([]string{"--json", "--nats", url, "--cluster", cluster})
	command.SetOut(&printed)
	err = command.ExecuteContext(t.Context())
	if unread := json.Unmarshal([]byte(printed.String()), &all); unread != nil {
		t.Fatalf("%v: %v in %q", err, unread, printed.String())
	}
	return all, err
}

func TestNothingIsFoundWhereAllIsWell(t *testing.T) {
	c := newClinic(t, func(jetstream.JetStream) {})
	c.sound()
	if findings, err := examined(t, c.url); err != nil || len(findings) > 0 {
		t.Errorf("%v, %q", err, findings)
	}
}

func TestWhatIsWrongIsFoundAndNothingElse(t *testing.T) {
	for name, test := range map[string]struct {
		spoil func(*testing.T, jetstream.JetStream)
		then  func(*clinic)
		want  []string
	}{
		"a log that drops what is old, and may be purged": {
			spoil: func(t *testing.T, js jetstream.JetStream) {
				config := jetstream.StreamConfig{Name: events.Lane("c", events.EventStream.Name), Subjects: events.EventStream.Subjects("c"),
					Discard: jetstream.DiscardOld, MaxAge: time.Hour, Duplicates: time.Minute, DenyDelete: true}
				if _, err := js.CreateStream(t.Context(), config); err != nil {
					t.Fatal(err)
				}
			},
			want: []string{"lets messages be deleted or purged", "another number of messages of a subject", "older than 1h0m0s, sooner", "remembers ids for 1m0s",
				"streams wrong: REKNIT_EVENTS_c drops what it acknowledged"},
		},
		"plans that may change": {
			spoil: func(t *testing.T, js jetstream.JetStream) {
				config := jetstream.StreamConfig{Name: events.Lane("c", events.PlanStream.Name), Subjects: events.PlanStream.Subjects("c"),
					Discard: jetstream.DiscardNew, Duplicates: events.PlanStream.Dedupe, DenyDelete: true, DenyPurge: true}
				if _, err := js.CreateStream(t.Context(), config); err != nil {
					t.Fatal(err)
				}
			},
			want: []string{"streams wrong: REKNIT_PLANS_c takes a second plan for a generation"},
		},
		"a bucket that is missing": {
			then: func(c *clinic) {
				if err := c.bus.JetStream().DeleteStream(c.t.Context(), "OBJ_"+c.bus.Lane(events.ShardBucket)); err != nil {
					c.t.Fatal(err)
				}
			},
			want: []string{"streams wrong: OBJ_REKNIT_SHARDS_c is missing"},
		},
		"an address that nobody reaches": {
			then: func(c *clinic) { c.t.Setenv("REKNIT_AGENT_ADVERTISE", "127.0.0.1:1") },
			want: []string{"own address wrong: n1 does not reach this node at 127.0.0.1:1: "},
		},
		"copies that differ, and no third one": {
			then: func(c *clinic) {
				c.commit(7)
				c.diverge(7, 0, "")
				c.diverge(7, 1, "")
				c.diverge(7, 1, events.Digest([]byte("right"))) // which was decided meanwhile
			},
			want: []string{"replicas wrong: unit-0 differed between n1, n2 after step 100, "},
		},
		"a job that ended with two models": {
			then: func(c *clinic) {
				c.say("/negotiator", events.TrainingCompleted, "c",
					&events.JobEnd{Generation: 7, Step: 200, Nodes: []string{"n1", "n2"}, Differ: []events.Range{{First: 3, End: 5}}})
			},
			want: []string{"replicas wrong: the job is complete: step 200 made by 2 nodes, and its nodes ended with different models: they differ in units 3-4"},
		},
		"a directory that is not there": {
			then: func(c *clinic) { c.t.Setenv("REKNIT_AGENT_SHARD_DIR", "/no/such") },
			want: []string{"disk wrong: /no/such: "},
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := newClinic(t, func(js jetstream.JetStream) {
				if test.spoil != nil {
					test.spoil(t, js)
				}
			})
			c.sound()
			if test.then != nil {
				test.then(c)
			}
			findings, err := examined(t, c.url)
			if !errors.As(err, &tell.NotWell{}) || len(findings) != len(test.want) {
				t.Fatalf("%v, %q", err, findings)
			}
			for i, want := range test.want {
				if !strings.Contains(strings.Join(findings, "\n"), want) {
					t.Errorf("%d: expected %q among %q", i, want, findings)
				}
			}
		})
	}
}

// A trainer without the agent that misspelt a kind was acknowledged, and nobody said anything.
func TestWhatIsSaidWhereNobodyListensIsFound(t *testing.T) {
	c := newClinic(t, func(jetstream.JetStream) {})
	c.sound()
	c.commit(7)
	for _, subject := range []string{"reknit.event.c.membership.join.n9", "reknit.event.c.nonsense", "reknit.event.c.membership.join.n9"} {
		if _, err := c.bus.JetStream().Publish(t.Context(), subject, nil); err != nil {
			t.Fatal(err)
		}
	}
	findings, err := examined(t, c.url)
	expected := "subjects warning: said on 2 subjects of no kind that this build knows, such as reknit.event.c.membership.join.n9"
	if err != nil || len(findings) != 1 || findings[0] != expected {
		t.Errorf("%v, %q: expected %q", err, findings, expected)
	}
}

// Who said an event by hand was told that it is stored, and heard no more of it.
func TestAMessageThatAServiceRefusedIsFound(t *testing.T) {
	c := newClinic(t, func(jetstream.JetStream) {})
	c.sound()
	c.commit(7)
	c.say("/negotiator", events.EventRefused, "e", &events.Quarantine{
		Reason: "invalid", Detail: "data: node missing", Subject: "reknit.event.c.node.lost.n2", Excerpt: []byte("{}"), Bytes: 2,
	})
	findings, err := examined(t, c.url)
	expected := "refused warning: 1 message was refused, the last one [0-9: -]+, as invalid, " +
		"on reknit.event.c.node.lost.n2: data: node missing"
	if err != nil || len(findings) != 1 || !regexp.MustCompile(expected).MatchString(findings[0]) {
		t.Errorf("%v, %q: expected %q", err, findings, expected)
	}
}

func TestServicesAndPeersThatAreAwayAreNamed(t *testing.T) {
	c := newClinic(t, func(jetstream.JetStream) {})
	c.plan("127.0.0.1:1")
	findings, err := examined(t, c.url)
	if !errors.As(err, &tell.NotWell{}) {
		t.Error(err)
	}
	said := strings.Join(findings, "\n")
	for _, says := range []string{"services wrong: no planner answers", "peers warning: n1 is not there: the process that"} {
		if !strings.Contains(said, says) || strings.Contains(said, "own address") {
			t.Errorf("expected %q, and nothing of this node's address, in\n%s", says, said)
		}
	}
	c.answer(events.ProbeSubject("c", "n1"), func(*nats.Msg) []byte { return nil })
	if findings, _ := examined(t, c.url); !strings.Contains(strings.Join(findings, "\n"), "peers warning: n1 cannot be reached") {
		t.Errorf("a node that lives, and whose port is closed, is found as %q", findings)
	}
}

// It was told to open a port that the old process had.
func TestAMemberInWhoseNameAnotherProcessAnswersIsNotThere(t *testing.T) {
	c := newClinic(t, func(jetstream.JetStream) {})
	c.plan("127.0.0.1:1")
	c.answer(events.ProbeSubject("c", "n1"), func(*nats.Msg) []byte { return []byte(`{"node": "n1", "incarnation": "another"}`) })
	findings, _ := examined(t, c.url)
	if says := "peers warning: n1 is not there"; !strings.Contains(strings.Join(findings, "\n"), says) {
		t.Errorf("expected %q in %q", says, findings)
	}
}

func TestAClusterThatHoldsIsNotWell(t *testing.T) {
	c := newClinic(t, func(jetstream.JetStream) {})
	c.sound()
	c.say("/negotiator", events.ClusterHeld, "c", &events.Hold{Reason: "no node has layer 1"})
	findings, err := examined(t, c.url)
	says := "training wrong: the cluster holds: no node has layer 1"
	if !errors.As(err, &tell.NotWell{}) || !slices.Contains(findings, says) {
		t.Errorf("%v, expected %q in %q", err, says, findings)
	}
}

func TestWhatIsInTheWayIsSaidOnce(t *testing.T) {
	findings, err := examined(t, "nats://127.0.0.1:1")
	if !errors.As(err, &tell.NotWell{}) || len(findings) != 1 || !strings.HasPrefix(findings[0], "NATS wrong: nats://127.0.0.1:1: ") {
		t.Errorf("no server: %v, %q", err, findings)
	}
	plain, err := server.NewServer(&server.Options{Host: "127.0.0.1", Port: server.RANDOM_PORT, NoSigs: true, NoLog: true})
	if err != nil {
		t.Fatal(err)
	}
	plain.Start()
	t.Cleanup(plain.Shutdown)
	findings, _ = examined(t, plain.ClientURL())
	if len(findings) != 1 || findings[0] != "JetStream wrong: it is off" {
		t.Errorf("no JetStream: %q", findings)
	}
}

func TestAUserThatMayNotHearWhatANodeMustIsTold(t *testing.T) {
	guarded, err := server.NewServer(&server.Options{
		Host: "127.0.0.1", Port: server.RANDOM_PORT, NoSigs: true, NoLog: true, JetStream: true, JetStreamMaxStore: 1 << 40,
		StoreDir: t.TempDir(),
		Users: []*server.User{{Username: "node", Password: "x", Permissions: &server.Permissions{
			Subscribe: &server.SubjectPermission{Deny: []string{"reknit.plan.>"}}}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	guarded.Start()
	t.Cleanup(guarded.Shutdown)
	url := strings.Replace(guarded.ClientURL(), "nats://", "nats://node:x@", 1)
	b, err := bus.Connect(t.Context(), bus.Config{URL: url, Name: "test", Cluster: "c"})
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	if err := b.Provision(t.Context()); err != nil {
		t.Fatal(err)
	}
	findings, _ := examined(t, url)
	if len(findings) == 0 || !strings.HasPrefix(findings[0], "permissions wrong: reknit.plan.c.*: ") {
		t.Errorf("found %q", findings)
	}
	if findings, _ := examined(t, guarded.ClientURL()); len(findings) != 1 || !strings.HasPrefix(findings[0], "NATS wrong: ") {
		t.Errorf("without a password: %q", findings)
	}
}

func TestASnapshotThatIsNotCompleteInTimeIsFound(t *testing.T) {
	c := newClinic(t, func(jetstream.JetStream) {})
	c.sound()
	c.commit(7)
	plan := events.Digest([]byte("plan"))
	c.say("/restorer", events.SnapshotCompleted, "disk", &events.CompleteSnapshot{Tier: "disk", Step: 100, Plan: plan})
	if findings, err := examined(t, c.url); err != nil || len(findings) > 0 {
		t.Errorf("%v, %q", err, findings)
	}
	late := &events.OverdueSnapshot{Tier: "disk", Step: 200, Plan: plan, Units: []events.Range{{First: 4, End: 6}}}
	c.say("/restorer", events.SnapshotOverdue, "disk", late)
	findings, err := examined(t, c.url)
	if err != nil || len(findings) != 1 || !strings.HasPrefix(findings[0], "snapshots warning: no snapshot is complete in disk since step 100, ") {
		t.Errorf("%v, %q", err, findings)
	}
}
