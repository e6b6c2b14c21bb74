package channel

import (
	"bytes"
	"crypto/tls"
	"testing"
)

func FuzzHandshake(f *testing.F) {
	f.Add(write([idBytes]byte{1}, []flight{{tls.QUICEncryptionLevelInitial, []byte("hello")}, {tls.QUICEncryptionLevelHandshake, nil}}))
	f.Add([]byte{handshakeWords})
	f.Fuzz(func(t *testing.T, words []byte) {
		id, flights, err := parse(words)
		if err == nil && !bytes.Equal(write(id, flights), words) {
			t.Errorf("%x is read as %v", words, flights)
		}
	})
}
