package transport

import (
	"bytes"
	"testing"
)

func message(generation, step uint64, item uint64, bytes int) Message {
	return Message{From: "a", Item: item, Payload: make([]byte, bytes), position: position{generation, step}}
}

func TestWhatIsAheadIsBounded(t *testing.T) {
	b := newInbox(1000)
	b.begin(position{1, 0})
	for item := range uint64(100) {
		b.put(message(2, 0, item, 100), false)
	}
	if b.ahead > 1000 {
		t.Errorf("%d bytes kept: expected at most 1000", b.ahead)
	}
	b.put(message(1, 0, 0, 5000), false)
	if _, ok := b.take(0); !ok {
		t.Error("a message of the step under way found no room")
	}
}

func TestWhoeverIsTooFarAheadWaitsForTheSwitch(t *testing.T) {
	b := newInbox(1000)
	b.begin(position{1, 0})
	done := make(chan struct{})
	go func() {
		for item := range uint64(100) {
			b.put(message(2, 0, item, 100), true)
		}
		close(done)
	}()
	for full := false; !full; {
		b.mutex.Lock()
		full = b.ahead > 700
		b.mutex.Unlock()
	}
	b.begin(position{2, 0})
	<-done
	for item := range 100 {
		if _, ok := b.take(0); !ok {
			t.Fatalf("%d messages kept: expected 100", item)
		}
	}
}

func TestAMessageBeyondTheBoundIsKeptWhereNothingElseIs(t *testing.T) {
	b := newInbox(1000)
	b.put(message(1, 0, 0, 5000), false)
	b.begin(position{1, 0})
	if _, ok := b.take(0); !ok {
		t.Error("a large message was dropped")
	}
}

func TestFramesSurviveTheWire(t *testing.T) {
	want := frame{kind: data, position: position{1 << 40, 1 << 41}, phase: 1 << 30, item: 1 << 60, total: 7, offset: 3,
		piece: []byte("abcd")}
	var wire bytes.Buffer
	if err := writeFrame(&wire, want); err != nil {
		t.Fatal(err)
	}
	got, err := readFrame(&wire)
	if err != nil || !bytes.Equal(got.piece, want.piece) {
		t.Fatalf("read %+v, %v: expected %+v", got, err, want)
	}
	if got.kind != want.kind || got.position != want.position || got.phase != want.phase || got.item != want.item ||
		got.total != want.total || got.offset != want.offset {
		t.Errorf("read %+v: expected %+v", got, want)
	}
}

func TestAnOversizedFrameIsRefused(t *testing.T) {
	for _, f := range []frame{
		{kind: data, total: messageBytes + 1},
		{kind: data, total: messageBytes, piece: make([]byte, PieceBytes+1)},
	} {
		if _, err := readFrame(bytes.NewReader(append(f.header(), f.piece...))); err == nil {
			t.Errorf("a frame of %d bytes of a message of %d was read", len(f.piece), f.total)
		}
	}
}

func TestAMessageWithALostPieceIsNotDelivered(t *testing.T) {
	whole := Message{Item: 1, Payload: make([]byte, 3*PieceBytes)}
	frames := whole.pieces()
	var a assembler
	for _, f := range []frame{frames[0], frames[2]} {
		if m, complete := a.add("b", f); complete {
			t.Fatalf("%d bytes delivered of %d", len(m.Payload), len(whole.Payload))
		}
	}
	for i, f := range frames {
		if m, complete := a.add("b", f); complete != (i == 2) || complete && len(m.Payload) != len(whole.Payload) {
			t.Fatalf("piece %d: complete is %v with %d bytes", i, complete, len(m.Payload))
		}
	}
}
