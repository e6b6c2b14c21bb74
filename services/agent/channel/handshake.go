package channel

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
)

// The first byte of a message says what it is.
const (
	handshakeWords = 1
	sealedWords    = 2
)

const idBytes = 16

// exporter is the label of the keys (RFC 8446, 7.5).
const exporter = "EXPORTER-reknit-channel"

// handshake is one of TLS 1.3, whose words travel as messages. Package tls has an interface for transports that are not its own,
// which it made for QUIC.
type handshake struct {
	id      [idBytes]byte
	conn    *tls.QUICConn
	process string // of the other end
	done    bool
}

// flight is what one end says at one level of encryption.
type flight struct {
	level tls.QUICEncryptionLevel
	words []byte
}

// make goes through the handshake as the one that began it, in two requests.
func (h *handshake) make(ctx context.Context, node string, ask func([]byte) ([]byte, error)) (*session, error) {
	if err := h.conn.Start(ctx); err != nil {
		return nil, err
	}
	says, err := h.step(nil)
	for err == nil && len(says) > 0 {
		var answer []byte
		if answer, err = ask(write(h.id, says)); err != nil {
			break
		}
		id, flights, wrong := parse(answer)
		if wrong != nil || id != h.id {
			return nil, errors.Join(wrong, fmt.Errorf("%s: expected an answer to this handshake", node))
		}
		says, err = h.step(flights)
	}
	if err != nil {
		return nil, err
	}
	if !h.done {
		return nil, fmt.Errorf("%s: expected the end of the handshake", node)
	}
	return h.session(true)
}

// step takes what the other end says, and returns what this one answers.
func (h *handshake) step(heard []flight) (says []flight, err error) {
	for _, flight := range heard {
		if err := h.conn.HandleData(flight.level, flight.words); err != nil {
			return nil, err
		}
	}
	for {
		switch event := h.conn.NextEvent(); event.Kind {
		case tls.QUICNoEvent:
			return says, nil
		case tls.QUICWriteData:
			says = append(says, flight{event.Level, bytes.Clone(event.Data)})
		case tls.QUICHandshakeDone:
			h.done = true
		}
	}
}

// session returns the keys that both ends have now.
func (h *handshake) session(began bool) (*session, error) {
	state := h.conn.ConnectionState()
	keys, err := state.ExportKeyingMaterial(exporter, h.id[:], 2*keyBytes)
	if err != nil {
		return nil, err
	}
	says, hears := keys[:keyBytes], keys[keyBytes:]
	if !began {
		says, hears = hears, says
	}
	return newSession(h.id, h.process, says, hears)
}

// write returns a message of a handshake: its id, and each flight with its level and length.
func write(id [idBytes]byte, flights []flight) []byte {
	words := append([]byte{handshakeWords}, id[:]...)
	for _, flight := range flights {
		words = append(words, byte(flight.level))
		words = binary.LittleEndian.AppendUint32(words, uint32(len(flight.words)))
		words = append(words, flight.words...)
	}
	return words
}

var errHandshake = errors.New("handshake: expected an id, and flights each with its level and length")

func parse(words []byte) (id [idBytes]byte, flights []flight, err error) {
	if len(words) < 1+idBytes || words[0] != handshakeWords {
		return id, nil, errHandshake
	}
	copy(id[:], words[1:])
	for rest := words[1+idBytes:]; len(rest) > 0; {
		if len(rest) < 5 {
			return id, nil, errHandshake
		}
		bytes := binary.LittleEndian.Uint32(rest[1:])
		if uint64(bytes) > uint64(len(rest)-5) {
			return id, nil, errHandshake
		}
		flights = append(flights, flight{tls.QUICEncryptionLevel(rest[0]), rest[5 : 5+bytes]})
		rest = rest[5+bytes:]
	}
	return id, flights, nil
}
