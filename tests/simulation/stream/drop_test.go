package stream

import (
	"testing"
	"time"

	"github.com/reknit/reknit/events"
)

// filled is a log of an hour with so many messages a second apart, every third of them of another family.
func filled(t *testing.T, count int) (s *Stream, end time.Time) {
	t.Helper()
	server := NewServer(events.Stream{MaxAge: time.Hour}, events.PlanStream, Limits{}, false)
	end = time.Unix(0, 0)
	for i := range count {
		subject := "e.a.x"
		if i%3 == 2 {
			subject = "e.b.y"
		}
		if _, err := server.Events.Publish(end, Message{Subject: subject, Bytes: 1, Data: i}, nil, Answered); err != nil {
			t.Fatal(err)
		}
		end = end.Add(time.Second)
	}
	return server.Events, end
}

// read returns the sequences that a follower finds.
func read(s *Stream, subjects ...string) (found []uint64) {
	for follower := s.Follow(subjects, 0); ; {
		message := follower.Next()
		if message == nil {
			return found
		}
		found = append(found, message.Sequence)
	}
}

func TestWhatIsTrimmedIsGoneAndWhatIsKeptStaysInItsPlace(t *testing.T) {
	s, _ := filled(t, 9)
	dropped := s.Trim(6, func(message *Message) bool { return message.Subject == "e.b.y" })
	if all := read(s, "e.>"); len(dropped) != 4 || len(all) != 5 || all[0] != 3 || all[4] != 9 {
		t.Errorf("%d are dropped, and %v left", len(dropped), all)
	}
	if some := read(s, "e.a.*", "e.c.z"); len(some) != 2 || some[0] != 7 || some[1] != 8 {
		t.Errorf("of one family %v are left", some)
	}
	if one := read(s, "e.b.y", "e.a.w"); len(one) != 3 || one[0] != 3 {
		t.Errorf("on one subject %v are left", one)
	}
	if held, _ := s.Size(); held != 5 {
		t.Errorf("%d bytes are left of 5 messages", held)
	}
}

func TestALogThatForgotMostHasTheRestWhereItWas(t *testing.T) {
	s, end := filled(t, 1000)
	if _, err := s.Publish(end.Add(time.Hour-100*time.Second), Message{Subject: "e.a.x", Bytes: 1}, nil, Answered); err != nil {
		t.Fatal(err)
	}
	if all := read(s, "e.>"); len(all) != 100 || all[0] != 902 || all[99] != 1001 || len(s.messages) != 100 {
		t.Errorf("%d are left from %d on, in room for %d", len(all), all[0], len(s.messages))
	}
	if message, err := s.Get(950, Answered); err != nil || message.Data != 949 {
		t.Errorf("message 950 is %v, %v", message.Data, err)
	}
	if _, err := s.Get(901, Answered); err == nil {
		t.Error("message 901 is there, an hour later")
	}
	if last, err := s.Last("e.b.*", Answered); err != nil || last.Sequence != 999 {
		t.Errorf("the last of a family is %d, %v", last.Sequence, err)
	}
}

func TestWhatIsThinnedCountsAsBefore(t *testing.T) {
	s, end := filled(t, 9)
	for range 2 {
		s.Thin(end.Add(-3*time.Second), func(data any) any { return -data.(int) })
	}
	held, _ := s.Size()
	old, _ := s.Get(6, Answered)
	fresh, _ := s.Get(7, Answered)
	if held != 9 || old.Data != -5 || fresh.Data != 6 {
		t.Errorf("%d bytes, with %v and %v", held, old.Data, fresh.Data)
	}
}
