package mtls

import (
	"errors"
	"sync/atomic"
	"testing"
	"time"
)

func TestBeforeThereIsAPlanNobodyIsLetIn(t *testing.T) {
	i := &Identity{}
	if _, err := i.Hold(t.Context(), "n1", func() {}); !errors.Is(err, ErrRefused) || i.IsIn("n1") {
		t.Errorf("expected that n1 is refused, got %v", err)
	}
}

func TestWhoIsNotInYetIsWaitedFor(t *testing.T) {
	i, in := &Identity{}, atomic.Bool{}
	i.Admit(func(node string) bool { return node == "n1" && in.Load() })
	time.AfterFunc(100*time.Millisecond, func() { in.Store(true) })
	if _, err := i.Hold(t.Context(), "n1", func() {}); err != nil {
		t.Error(err)
	}
	if _, err := i.Hold(t.Context(), "n2", func() {}); !errors.Is(err, ErrRefused) {
		t.Errorf("expected that n2 is refused, got %v", err)
	}
}

func TestWhoIsNoLongerInIsCutOffUnlessItComesBack(t *testing.T) {
	recheckEvery = 50 * time.Millisecond
	i, out := &Identity{}, atomic.Bool{}
	i.Admit(func(node string) bool { return node == "n1" || !out.Load() })
	left := make(chan string, 3)
	hold := func(node string) (release func()) {
		release, err := i.Hold(t.Context(), node, func() { left <- node })
		if err != nil {
			t.Fatal(err)
		}
		return release
	}
	hold("n1")
	hold("n2")
	hold("n3")() // its connection has ended
	time.Sleep(3 * recheckEvery)
	if len(left) > 0 {
		t.Fatalf("%s is cut off, which is in", <-left)
	}
	out.Store(true)
	select {
	case node := <-left:
		if node != "n2" {
			t.Errorf("%s is cut off: expected n2", node)
		}
	case <-time.After(10 * time.Second):
		t.Fatal("n2 is not cut off")
	}
	time.Sleep(3 * recheckEvery)
	if len(left) > 0 {
		t.Errorf("%s is cut off, too", <-left)
	}
}

func TestWithoutKeysEverybodyIsLetIn(t *testing.T) {
	var i *Identity
	i.Admit(nil)
	if _, err := i.Hold(t.Context(), "n1", func() {}); err != nil {
		t.Error(err)
	}
}
