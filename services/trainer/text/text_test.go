package text

import (
	"bytes"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

// randomText returns a text and its cut, of random small sizes.
func randomText(t *testing.T, seed uint64) (content []byte, context, window int, cut *Text) {
	t.Helper()
	random := rand.New(rand.NewPCG(seed, 0))
	context, window = 1+random.IntN(5), 1+random.IntN(5)
	content = make([]byte, context+window+random.IntN(200))
	for i := range content {
		content[i] = byte(7 * random.IntN(30))
	}
	content[0], content[1] = 'a', 'b'
	cut, err := New(content, context, window, seed)
	if err != nil {
		t.Fatalf("seed %d: %v", seed, err)
	}
	return content, context, window, cut
}

// spell turns vocabulary indices back into bytes.
func spell(cut *Text, indices []byte) []byte {
	spelt := make([]byte, len(indices))
	for i, index := range indices {
		spelt[i] = cut.Vocabulary()[index]
	}
	return spelt
}

func TestEveryEpochHoldsEveryWindowOnce(t *testing.T) {
	for seed := range uint64(200) {
		content, context, window, cut := randomText(t, seed)
		var want []string // the slow twin: the text read from left to right
		for start := 0; start+context+window <= len(content); start += window {
			want = append(want, string(content[start:start+context+window]))
		}
		slices.Sort(want)
		if len(want) != cut.Windows() {
			t.Fatalf("seed %d: %d windows: expected %d", seed, cut.Windows(), len(want))
		}
		for epoch := range 3 {
			var got []string
			for position := range cut.Windows() {
				characters, targets, err := cut.Sample(epoch*cut.Windows() + position)
				if err != nil {
					t.Fatalf("seed %d: %v", seed, err)
				}
				if len(targets) != window || len(characters) != context+window-1 {
					t.Fatalf("seed %d: %d characters and %d targets: expected %d and %d",
						seed, len(characters), len(targets), context+window-1, window)
				}
				got = append(got, string(spell(cut, append(slices.Clone(characters), targets[window-1]))))
			}
			slices.Sort(got)
			if !slices.Equal(got, want) {
				t.Fatalf("seed %d: epoch %d holds %q: expected %q", seed, epoch, got, want)
			}
		}
	}
}

func TestEachTargetFollowsTheCharactersThatItsPositionSees(t *testing.T) {
	for seed := range uint64(50) {
		content, context, _, cut := randomText(t, seed)
		characters, targets, err := cut.Sample(int(seed))
		if err != nil {
			t.Fatal(err)
		}
		for position := range targets {
			seen := append(slices.Clone(characters[position:position+context]), targets[position])
			if !bytes.Contains(content, spell(cut, seen)) {
				t.Fatalf("seed %d: position %d pairs %q: the text does not", seed, position, spell(cut, seen))
			}
		}
	}
}

func TestTheOrderFollowsFromTheSeedAndTheEpoch(t *testing.T) {
	content := []byte("the order of the windows is a matter of the seed and of the epoch, of nothing else")
	order := func(seed uint64, epoch int) string {
		cut, err := New(content, 3, 2, seed)
		if err != nil {
			t.Fatal(err)
		}
		var all []byte
		for position := range cut.Windows() {
			_, targets, err := cut.Sample(epoch*cut.Windows() + position)
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, targets...)
		}
		return string(all)
	}
	once, again := order(1, 0), order(1, 0)
	if once != again {
		t.Error("one seed and epoch gave two orders")
	}
	if once == order(1, 1) {
		t.Error("two epochs have one order")
	}
	if once == order(2, 0) {
		t.Error("two seeds have one order")
	}
}

func TestTheVocabularyIsTheDistinctBytesInOrder(t *testing.T) {
	cut, err := New([]byte("banana\xff\x00"), 2, 3, 0)
	if err != nil {
		t.Fatal(err)
	}
	if got := string(cut.Vocabulary()); got != "\x00abn\xff" {
		t.Errorf("vocabulary is %q: expected %q", got, "\x00abn\xff")
	}
}

func TestATextOfOneWindowIsEnough(t *testing.T) {
	cut, err := New([]byte("abcde"), 3, 2, 9)
	if err != nil {
		t.Fatal(err)
	}
	for index := range 3 {
		characters, targets, err := cut.Sample(index)
		if err != nil {
			t.Fatal(err)
		}
		if string(spell(cut, characters)) != "abcd" || string(spell(cut, targets)) != "de" {
			t.Errorf("sample %d is %q, %q: expected abcd, de", index, spell(cut, characters), spell(cut, targets))
		}
	}
}

func TestWhatCannotBeCutIsRefused(t *testing.T) {
	for name, attempt := range map[string]struct {
		text            string
		context, window int
	}{
		"empty text":     {"", 1, 1},
		"too short":      {"abcd", 3, 2},
		"one byte only":  {"aaaaaaa", 3, 2},
		"no context":     {"abcdefg", 0, 2},
		"no window":      {"abcdefg", 3, 0},
		"huge sizes":     {"abcdefg", math.MaxInt, math.MaxInt},
		"negative sizes": {"abcdefg", -3, -2},
	} {
		if _, err := New([]byte(attempt.text), attempt.context, attempt.window, 0); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
	cut, err := New([]byte("abcdefg"), 3, 2, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := cut.Sample(-1); err == nil {
		t.Error("a negative sample index was accepted")
	}
	if _, _, err := cut.Sample(math.MaxInt); err != nil {
		t.Errorf("the largest sample index: %v", err)
	}
}
