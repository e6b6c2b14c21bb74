package local

import (
	"net/http"
	"sync"
	"testing"
)

func TestTrainersOfAGenerationExchangeValues(t *testing.T) {
	r := newRig(t)
	c, _ := r.train()
	c.expect(http.StatusNotFound, nil, "GET", "/v1/store/1/a%2Fkey", "")
	var waiting sync.WaitGroup
	waiting.Go(func() {
		if _, value := r.call(c.http, "GET", c.path("/v1/store/1/a%2Fkey?wait=60"), nil); string(value) != "here" {
			t.Errorf("expected what was set, got %q", value)
		}
	})
	c.expect(http.StatusOK, nil, "PUT", "/v1/store/1/a%2Fkey", "here")
	waiting.Wait()
	for number := range 3 {
		expected := itoa(uint64(2*number + 2))
		if _, sum := r.call(c.http, "POST", c.path("/v1/store/1/count?add=2"), nil); string(sum) != expected {
			t.Errorf("expected %s, got %s", expected, sum)
		}
	}
	c.expect(http.StatusNotFound, nil, "GET", "/v1/store/1/never?wait=0.01", "")
	c.expect(http.StatusConflict, nil, "GET", "/v1/store/2/a%2Fkey", "")
}

func TestManyAddAtATime(t *testing.T) {
	r := newRig(t)
	c, _ := r.train()
	var adding sync.WaitGroup
	for range 8 {
		adding.Go(func() { c.expect(http.StatusOK, nil, "POST", "/v1/store/1/count?add=1", "") })
	}
	adding.Wait()
	if _, sum := r.call(c.http, "GET", c.path("/v1/store/1/count"), nil); string(sum) != "8" {
		t.Errorf("expected 8, got %s", sum)
	}
}

func TestAWaitForAValueEndsWithItsStepAndAnOlderGenerationIsOver(t *testing.T) {
	r := newRig(t)
	c, step := r.train()
	var waiting sync.WaitGroup
	waiting.Go(func() { c.expect(http.StatusGone, nil, "GET", "/v1/store/1/never?wait=60", "") })
	r.abandon(c.member)
	waiting.Wait()
	waiting.Go(func() { c.next(orderAdopt, Report{Order: step.ID}) })
	r.commit(0, c.member)
	waiting.Wait()
	c.next(orderStep, Report{Order: step.ID + 1})
	c.expect(http.StatusGone, nil, "PUT", "/v1/store/1/key", "late")
}

func TestCallsThatWaitAreBounded(t *testing.T) {
	r := newRig(t)
	c, _ := r.train()
	statuses := make(chan int)
	for range mostWaiting + 1 {
		go func() {
			status, _ := r.call(r.dial(), "GET", c.path("/v1/store/1/never?wait=60"), nil)
			statuses <- status
		}()
	}
	if status := <-statuses; status != http.StatusServiceUnavailable {
		t.Errorf("expected one too many, got %d", status)
	}
	c.expect(http.StatusOK, nil, "PUT", "/v1/store/1/never", "now")
	for range mostWaiting {
		if status := <-statuses; status != http.StatusOK {
			t.Errorf("expected the value, got %d", status)
		}
	}
}
