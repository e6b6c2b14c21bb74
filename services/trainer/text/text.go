// Package text turns a text into an endless run of training samples.
//
// Sample i is a function of the text and the seed alone, so any process can make
// any sample, and a plan needs only a range of indices to say who trains on what.
package text

import (
	"fmt"
	"slices"

	"github.com/reknit/reknit/shared/ledger"
)

// Text is a text cut into windows of characters to predict. It is not changed after New.
type Text struct {
	characters []byte // indices into the vocabulary
	vocabulary []byte
	context    int
	window     int
	seed       uint64
}

// New cuts the text into windows of window characters to predict, each character from
// the context characters before it. The characters are bytes; the vocabulary is the
// distinct ones in order. The seed decides the order of the windows in each epoch.
//
// A context or window below 1, a text shorter than context+window bytes, and a text
// that repeats one byte are errors.
func New(text []byte, context, window int, seed uint64) (*Text, error) {
	if context < 1 || window < 1 {
		return nil, fmt.Errorf("context is %d and window is %d: expected both at least 1", context, window)
	}
	// Subtracting, since the sum of two huge values would wrap around.
	if len(text)-window < context {
		return nil, fmt.Errorf("text has %d bytes: expected at least context %d + window %d",
			len(text), context, window)
	}
	vocabulary, indices := distinct(text)
	if len(vocabulary) < 2 {
		return nil, fmt.Errorf("text repeats the byte %#x: expected at least 2 distinct bytes", vocabulary[0])
	}
	characters := make([]byte, len(text))
	for i, character := range text {
		characters[i] = indices[character]
	}
	return &Text{characters: characters, vocabulary: vocabulary, context: context, window: window, seed: seed}, nil
}

// distinct returns the distinct bytes in order, and where each of them is there.
func distinct(text []byte) (vocabulary []byte, indices [256]byte) {
	var seen [256]bool
	for _, character := range text {
		seen[character] = true
	}
	for character, is := range seen {
		if is {
			indices[character] = byte(len(vocabulary))
			vocabulary = append(vocabulary, byte(character))
		}
	}
	return vocabulary, indices
}

// Vocabulary returns the text's distinct bytes in order: sample values index it.
func (t *Text) Vocabulary() []byte {
	return slices.Clone(t.vocabulary)
}

// Windows is the number of samples in an epoch. The characters left over at the end
// of the text, fewer than a window, are never targets.
func (t *Text) Windows() int {
	return (len(t.characters) - t.context) / t.window
}

// Sample returns sample index of the endless run: step k of global batch G trains on
// samples [k*G, (k+1)*G). Target p is the character after characters[p:p+context], so
// there are context+window-1 characters and window targets, as indices into the
// vocabulary. Both are views of the text: read them only. Every epoch of Windows
// samples holds every window once, in an order of its own. A negative index is an error.
func (t *Text) Sample(index int) (characters, targets []byte, err error) {
	if index < 0 {
		return nil, nil, fmt.Errorf("sample index is %d: expected at least 0", index)
	}
	order := ledger.Order{Samples: uint64(t.Windows()), Seed: t.seed}
	start := int(order.At(uint64(index))) * t.window
	first := start + t.context
	return t.characters[start : first+t.window-1], t.characters[first : first+t.window], nil
}
