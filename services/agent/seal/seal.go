// Package seal keeps the bytes of shard parts from who stores them on their way.
package seal

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"fmt"
)

// Bytes is the length of a key.
const Bytes = 32

// Key is what a receiver draws and its givers are told, and nobody else has. A nil one seals nothing: the bytes are as they are.
// Its methods may be called by several goroutines.
type Key []byte

// String hides it from whoever prints what holds it.
func (k Key) String() string { return fmt.Sprintf("a key of %d bytes", len(k)) }

// New draws a key.
func New() Key {
	key := make(Key, Bytes)
	rand.Read(key) // never fails
	return key
}

// Text returns the key as it travels; empty for a nil one.
func (k Key) Text() string { return base64.StdEncoding.EncodeToString(k) }

// Read returns the key that a text is; nil for an empty one.
func Read(text string) (Key, error) {
	if text == "" {
		return nil, nil
	}
	key, err := base64.StdEncoding.DecodeString(text)
	if err != nil || len(key) != Bytes {
		return nil, fmt.Errorf("key: expected %d bytes in base64", Bytes)
	}
	return key, nil
}

// Name is under which a sealed part is stored: what is sealed with another key is not there. It is the digest if the key is nil.
func (k Key) Name(digest string) string {
	if k == nil {
		return digest
	}
	return "sealed:" + hex.EncodeToString(k.derive("name", digest))
}

// derive returns 32 bytes that nobody without the key can tell from chance.
func (k Key) derive(purpose, digest string) []byte {
	derived := hmac.New(sha256.New, k)
	derived.Write([]byte(purpose + " " + digest))
	return derived.Sum(nil)
}

// Apply seals bytes of a part in place, or opens sealed ones: first is where they lie in the part, digest is that of the
// whole part as it is. O(bytes).
//
// It is AES-256 in counter mode with a key of the digest's own, so that no two contents share a stream and any range is
// opened by itself. It authenticates nothing: whoever opens a part compares its digest, which its giver signed.
func (k Key) Apply(digest string, first int64, data []byte) {
	if k == nil {
		return
	}
	block, err := aes.NewCipher(k.derive("bytes", digest))
	if err != nil {
		panic(err) // its length is right
	}
	var counter, skipped [aes.BlockSize]byte
	binary.BigEndian.PutUint64(counter[aes.BlockSize-8:], uint64(first/aes.BlockSize))
	stream := cipher.NewCTR(block, counter[:])
	before := skipped[:first%aes.BlockSize]
	stream.XORKeyStream(before, before)
	stream.XORKeyStream(data, data)
}
