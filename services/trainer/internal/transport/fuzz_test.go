package transport

import (
	"bytes"
	"encoding/binary"
	"io"
	"slices"
	"testing"
)

func sent(frames ...frame) []byte {
	var stream bytes.Buffer
	for _, f := range frames {
		_ = writeFrame(&stream, f) // a buffer takes all
	}
	return stream.Bytes()
}

// FuzzFrames reads a stream of frames as a connection does, and puts their messages together.
func FuzzFrames(f *testing.F) {
	message := Message{From: "n1", Phase: 2, Item: 3, Payload: []byte("payload"), position: position{4, 5}}
	f.Add(sent(message.pieces()...))
	begun := frame{kind: data, total: 9, piece: []byte("abc")}
	rest := frame{kind: data, total: 9, offset: 3, piece: []byte("defghi")}
	f.Add(sent(begun, rest, frame{kind: alive}, frame{kind: bye}))
	beyond := rest
	beyond.piece = []byte("defghijkl")
	f.Add(sent(begun, beyond))
	f.Add(binary.LittleEndian.AppendUint32(make([]byte, headerBytes-4), PieceBytes+1))
	f.Fuzz(func(t *testing.T, stream []byte) {
		reader, pieces := bytes.NewReader(stream), new(assembler)
		for {
			read, err := readFrame(reader)
			if err != nil {
				return
			}
			back, err := readFrame(bytes.NewReader(sent(read)))
			if err != nil || !slices.Equal(back.header(), read.header()) || !bytes.Equal(back.piece, read.piece) {
				t.Fatalf("%+v came back as %+v, %v", read, back, err)
			}
			if read.kind != data {
				continue
			}
			before := len(pieces.message.Payload)
			message, complete := pieces.add("n1", read)
			if gathered := len(pieces.message.Payload); gathered > before && gathered > int(read.total) {
				t.Fatalf("%d bytes are kept of a message of %d", gathered, read.total)
			}
			if complete && len(message.Payload) != int(read.total) {
				t.Fatalf("a message of %d bytes has %d", read.total, len(message.Payload))
			}
		}
	})
}

// FuzzMessage cuts any message into frames, and has them read as one again.
func FuzzMessage(f *testing.F) {
	f.Add(uint64(1), uint64(2), uint32(3), uint64(4), []byte("payload"))
	f.Add(uint64(1), uint64(2), uint32(3), uint64(4), make([]byte, PieceBytes+1))
	f.Fuzz(func(t *testing.T, generation, step uint64, phase uint32, item uint64, payload []byte) {
		message := Message{From: "n1", Phase: phase, Item: item, Payload: payload, position: position{generation, step}}
		reader, pieces := bytes.NewReader(sent(message.pieces()...)), new(assembler)
		for {
			read, err := readFrame(reader)
			if err == io.EOF { //nolint:errorlint // of a reader of bytes
				t.Fatal("the message is not complete")
			}
			if err != nil {
				t.Fatal(err)
			}
			if back, complete := pieces.add("n1", read); complete {
				if !bytes.Equal(back.Payload, payload) || back.position != message.position || back.Item != item || reader.Len() > 0 {
					t.Errorf("%+v came back as %+v", message, back)
				}
				return
			}
		}
	})
}
