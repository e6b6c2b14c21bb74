package local

import (
	"context"
	"net/http"
	"testing"
)

// Its agent would say of a trainer that it does not know that it trains alone.
func TestAnAnnouncedTrainerIsKnownUntilItHangsUp(t *testing.T) {
	r := newRig(t)
	ctx, hangUp := context.WithCancel(t.Context())
	request, err := http.NewRequestWithContext(ctx, "GET", "http://agent/v1/announce", nil)
	if err != nil {
		t.Fatal(err)
	}
	if r.server.Knows() {
		t.Error("it knows a trainer before there is any")
	}
	response, err := r.dial().Do(request)
	if err != nil || response.StatusCode != http.StatusOK {
		t.Fatalf("announced with %v, %v", response, err)
	}
	defer response.Body.Close()
	if !r.server.Knows() {
		t.Error("it does not know the trainer that stands announced")
	}
	hangUp()
	for range MostTrainers { // the last of them has room once the trainer's token is back
		r.server.announcing <- struct{}{}
	}
	for range MostTrainers {
		<-r.server.announcing
	}
	if r.server.Knows() {
		t.Error("it still knows a trainer that hung up")
	}
}

// An agent said of a script that evaluated after its last step that it has not joined yet.
func TestATrainerWhoseSessionHasEndedIsKnownUntilItsProcessHas(t *testing.T) {
	r := newRig(t)
	r.trainTogether().dies()
	<-r.server.Idle()
	if !r.server.Knows() {
		t.Error("it does not know the trainer that had a session")
	}
	r.server.Gone("exit status 0", 0)
	if r.server.Knows() {
		t.Error("it knows the trainer whose process is gone")
	}
}
