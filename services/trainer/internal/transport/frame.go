package transport

import (
	"encoding/binary"
	"fmt"
	"io"
)

// PieceBytes is the most payload one frame carries: a relayed frame stays under the hub's 1 MiB, and a heartbeat
// waits for half a MiB at most.
const PieceBytes = 512 << 10

// messageBytes bounds a message, so that a broken sender cannot fill the memory.
const messageBytes = 256 << 20

// kind is what a frame is for.
type kind byte

const (
	data  kind = iota + 1 // a piece of a message
	alive                 // the sender is there but has nothing to say
	again                 // the sender misses messages: send those of the last two steps once more
	bye                   // the sender goes, on purpose; position.generation is the one it goes on with
)

// position is a step of a generation. Positions only grow.
type position struct{ generation, step uint64 }

func (p position) before(q position) bool {
	return p.generation < q.generation || p.generation == q.generation && p.step < q.step
}

// frame is what travels: 41 bytes of header, numbers little endian, and a piece of a message.
type frame struct {
	kind     kind
	position position
	phase    uint32
	item     uint64
	total    uint32 // bytes of the whole message
	offset   uint32 // where the piece begins in it
	piece    []byte
}

const headerBytes = 1 + 8 + 8 + 4 + 8 + 4 + 4 + 4

func (f frame) header() []byte {
	h := make([]byte, 0, headerBytes)
	h = append(h, byte(f.kind))
	h = binary.LittleEndian.AppendUint64(h, f.position.generation)
	h = binary.LittleEndian.AppendUint64(h, f.position.step)
	h = binary.LittleEndian.AppendUint32(h, f.phase)
	h = binary.LittleEndian.AppendUint64(h, f.item)
	h = binary.LittleEndian.AppendUint32(h, f.total)
	h = binary.LittleEndian.AppendUint32(h, f.offset)
	return binary.LittleEndian.AppendUint32(h, uint32(len(f.piece)))
}

func writeFrame(w io.Writer, f frame) error {
	if _, err := w.Write(f.header()); err != nil {
		return err
	}
	_, err := w.Write(f.piece)
	return err
}

func readFrame(r io.Reader) (frame, error) {
	var h [headerBytes]byte
	if _, err := io.ReadFull(r, h[:]); err != nil {
		return frame{}, err
	}
	f := frame{
		kind: kind(h[0]),
		position: position{
			generation: binary.LittleEndian.Uint64(h[1:]),
			step:       binary.LittleEndian.Uint64(h[9:]),
		},
		phase:  binary.LittleEndian.Uint32(h[17:]),
		item:   binary.LittleEndian.Uint64(h[21:]),
		total:  binary.LittleEndian.Uint32(h[29:]),
		offset: binary.LittleEndian.Uint32(h[33:]),
	}
	size := binary.LittleEndian.Uint32(h[37:])
	if size > PieceBytes || f.total > messageBytes {
		return frame{}, fmt.Errorf("frame of %d bytes of a message of %d: expected at most %d of %d",
			size, f.total, PieceBytes, messageBytes)
	}
	if uint64(f.offset)+uint64(size) > uint64(f.total) { // what is beyond the end would be kept as well
		return frame{}, fmt.Errorf("frame of %d bytes at %d of a message of %d: expected an end within it", size, f.offset, f.total)
	}
	f.piece = make([]byte, size)
	_, err := io.ReadFull(r, f.piece)
	return f, err
}

// Message is what one node sends another in a step. Phase and Item are the sender's to choose: a phase is what the
// receiver waits for, and an item tells the messages of one sender and phase apart.
type Message struct {
	From     string
	Phase    uint32
	Item     uint64
	Payload  []byte
	position position
}

// pieces cuts a message into frames; an empty one is one frame.
func (m Message) pieces() []frame {
	var frames []frame
	for offset := 0; offset == 0 || offset < len(m.Payload); offset += PieceBytes {
		end := min(offset+PieceBytes, len(m.Payload))
		frames = append(frames, frame{
			kind: data, position: m.position, phase: m.Phase, item: m.Item,
			total: uint32(len(m.Payload)), offset: uint32(offset), piece: m.Payload[offset:end],
		})
	}
	return frames
}

// assembler joins the pieces of one sender's messages, which come one message after another.
type assembler struct{ message Message }

// add takes a piece, and returns the message it completes. A piece that does not follow the one before, as after
// a loss on the way, drops the message it belongs to: complete is false, and the sender has to be asked again.
func (a *assembler) add(from string, f frame) (message Message, complete bool) {
	if f.offset == 0 {
		a.message = Message{From: from, Phase: f.phase, Item: f.item, position: f.position}
	}
	m := &a.message
	if m.Phase != f.phase || m.Item != f.item || m.position != f.position || len(m.Payload) != int(f.offset) {
		return Message{}, false
	}
	m.Payload = append(m.Payload, f.piece...)
	return *m, len(m.Payload) == int(f.total)
}
