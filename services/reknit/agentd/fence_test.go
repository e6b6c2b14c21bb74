package agentd

import (
	"context"
	"net"
	"syscall"
	"testing"
	"time"
)

func TestAHubThatDoesNotRunHearsNobody(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	runs := "nats://" + listener.Addr().String()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if refused(ctx, "nats://127.0.0.1:1, "+runs) {
		t.Error("one of two servers runs")
	}
	listener.Close()
	if !refused(ctx, "nats://127.0.0.1:1, "+runs) {
		t.Error("none runs")
	}
}

func TestAScriptThatIsCutOffIsStoppedAndAllAreStartedAgainOnceItIsHeard(t *testing.T) {
	s := &standIn{cut: make(chan struct{}, 1), broken: make(chan failure, 1)}
	u := &unchanged{standIn: s, place: place{generation: 3}}
	var err error
	if u.child, err = begin([]string{"sleep", "600"}, nil, &input{}); err != nil {
		t.Fatal(err)
	}
	put(s.cut)
	if err := u.turn(); err != nil || u.child != nil {
		t.Fatalf("%v, it runs: %v", err, u.child != nil)
	}
	if status := u.exit.status(); status != 128+int(syscall.SIGTERM) {
		t.Errorf("status %d: expected that it was stopped", status)
	}
	if told := <-s.broken; told.generation != 3 {
		t.Errorf("the cluster is told %+v", told)
	}
}
