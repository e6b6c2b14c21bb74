package channel

import (
	"crypto/aes"
	"crypto/cipher"
	"encoding/binary"
	"errors"
	"fmt"
	"sync"
	"time"
)

const (
	keyBytes    = 32
	numberBytes = 8
	tagBytes    = 16
)

// answers is added to the kind of what answers a request, whose number it has.
const answers = 1 << 7

// session is what a handshake agreed on: a key for each direction. Messages of a kind are numbered, and a number counts once. Its methods
// may be called by several goroutines.
type session struct {
	id          [idBytes]byte
	made        time.Time
	process     string // of the peer, with which it was agreed
	says, hears cipher.AEAD

	mutex sync.Mutex
	next  [kinds]uint64
	heard [kinds]window
}

func newSession(id [idBytes]byte, process string, says, hears []byte) (*session, error) {
	s := &session{id: id, made: time.Now(), process: process}
	for _, key := range []struct {
		of   []byte
		into *cipher.AEAD
	}{{says, &s.says}, {hears, &s.hears}} {
		block, err := aes.NewCipher(key.of)
		if err != nil {
			return nil, err
		}
		if *key.into, err = cipher.NewGCM(block); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// nonce is one for each message under a key: kinds number theirs apart, and an answer has the number of a request that counts once.
func nonce(kind Kind, number uint64) []byte {
	return binary.LittleEndian.AppendUint64([]byte{byte(kind), 0, 0, 0}, number)
}

func (s *session) seal(kind Kind, text []byte) []byte {
	s.mutex.Lock()
	s.next[kind]++
	number := s.next[kind]
	s.mutex.Unlock()
	return s.sealAs(kind, number, text)
}

func (s *session) answer(kind Kind, number uint64, text []byte) []byte {
	return s.sealAs(kind|answers, number, text)
}

func (s *session) sealAs(kind Kind, number uint64, text []byte) []byte {
	words := make([]byte, 1+idBytes, Bytes+len(text))
	words[0] = sealedWords
	copy(words[1:], s.id[:])
	words = binary.LittleEndian.AppendUint64(words, number)
	return s.says.Seal(words, nonce(kind, number), text, words)
}

// numberOf returns the number of a sealed message.
func numberOf(sealed []byte) uint64 { return binary.LittleEndian.Uint64(sealed[1+idBytes:]) }

func (s *session) open(kind Kind, sealed []byte) (text []byte, number uint64, err error) {
	number = numberOf(sealed)
	if text, err = s.openAs(kind, number, sealed); err != nil {
		return nil, 0, err
	}
	s.mutex.Lock()
	defer s.mutex.Unlock()
	if !s.heard[kind].take(number) {
		return nil, 0, fmt.Errorf("message %d: expected one that was not heard yet", number)
	}
	return text, number, nil
}

// answered opens the answer to a request.
func (s *session) answered(kind Kind, number uint64, sealed []byte) ([]byte, error) {
	if len(sealed) < Bytes || numberOf(sealed) != number {
		return nil, errors.New("answer: expected the one to this request, sealed")
	}
	return s.openAs(kind|answers, number, sealed)
}

func (s *session) openAs(kind Kind, number uint64, sealed []byte) ([]byte, error) {
	head := sealed[:1+idBytes+numberBytes]
	return s.hears.Open(nil, nonce(kind, number), sealed[len(head):], head)
}

// window tells which of the last 64 numbers were heard, as those of IPsec do (RFC 4303, 3.4.3).
type window struct {
	last uint64
	seen uint64 // bit i: last - i was heard
}

// take reports whether a number counts, and notes it.
func (w *window) take(number uint64) bool {
	switch {
	case number > w.last:
		w.seen = w.seen<<min(number-w.last, 64) | 1 // a shift by 64 leaves nothing
		w.last = number
		return true
	case w.last-number >= 64 || w.seen&(1<<(w.last-number)) != 0:
		return false
	}
	w.seen |= 1 << (w.last - number)
	return true
}
