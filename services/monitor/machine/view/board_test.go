package view

import (
	"fmt"
	"math/rand/v2"
	"testing"
)

// reader is somebody who looks now and then.
type reader struct {
	version uint64
	knows   map[string]string
}

func (r *reader) look(b *Board) (heard int) {
	news, now, anew := b.Since(r.version)
	if anew {
		r.knows = map[string]string{}
	}
	for _, one := range news {
		if r.knows[one.Key] = string(one.Data); string(one.Data) == "null" {
			delete(r.knows, one.Key)
		}
	}
	r.version = now
	return len(news)
}

func TestWhoeverLooksHoweverSeldomKnowsWhatThereIs(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for range 200 {
		board, readers := NewBoard(), make([]reader, 4)
		for i := range readers {
			readers[i].knows = map[string]string{}
		}
		for range 50 {
			parts := map[string][]byte{}
			for key := range random.IntN(30) {
				if random.IntN(3) > 0 {
					parts[fmt.Sprint(key)] = fmt.Append(nil, random.IntN(3))
				}
			}
			board.Put(parts)
			if random.IntN(20) == 0 {
				board.forget()
			}
			for i := range readers {
				if random.IntN(1<<i) == 0 {
					readers[i].look(board)
					compare(t, readers[i].knows, parts)
				}
			}
		}
	}
}

func compare(t *testing.T, knows map[string]string, parts map[string][]byte) {
	t.Helper()
	if len(knows) != len(parts) {
		t.Fatalf("a reader knows %v, expected %v", knows, parts)
	}
	for key, data := range parts {
		if knows[key] != string(data) {
			t.Fatalf("a reader knows %q of %s, expected %q", knows[key], key, data)
		}
	}
}

func TestAReaderHearsOnlyWhatChanged(t *testing.T) {
	board, one := NewBoard(), reader{knows: map[string]string{}}
	board.Put(map[string][]byte{"a": []byte("1"), "b": []byte("1")})
	if heard := one.look(board); heard != 2 {
		t.Errorf("at first %d parts are heard, expected 2", heard)
	}
	if changed := board.Put(map[string][]byte{"a": []byte("1"), "b": []byte("1")}); changed || one.look(board) != 0 {
		t.Error("parts that are as they were are news")
	}
	if changed := board.Put(map[string][]byte{"a": []byte("2")}); !changed || one.look(board) != 2 || len(one.knows) != 1 {
		t.Errorf("a reader knows %v, expected that a changed and b is gone", one.knows)
	}
}

func TestWhatIsGoneIsNotRememberedForEver(t *testing.T) {
	board, seldom := NewBoard(), reader{knows: map[string]string{}}
	board.Put(map[string][]byte{"first": []byte("1")})
	seldom.look(board)
	const many = 100
	last := map[string][]byte{}
	for i := range 3 * mostGone / many {
		last = map[string][]byte{}
		for k := range many {
			last[fmt.Sprint(i, k)] = []byte("1")
		}
		board.Put(last)
	}
	if len(board.parts) > mostGone+2*many {
		t.Errorf("the board holds %d parts, expected at most %d", len(board.parts), mostGone+2*many)
	}
	seldom.look(board)
	compare(t, seldom.knows, last)
}

func TestAReaderOfAnotherBoardBeginsAnew(t *testing.T) {
	board := NewBoard()
	board.Put(map[string][]byte{"a": []byte("1")})
	if news, _, anew := board.Since(1 << 20); !anew || len(news) != 1 {
		t.Errorf("anew %v with %d parts, expected everything anew", anew, len(news))
	}
}
