package links

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"time"

	"github.com/reknit/reknit/services/agent/mtls"
)

// A probe is a request of 4 bytes, the length of what follows them, and an answer of one byte once all is there.

// roundTrips is how many empty probes are timed; the fastest counts, since queues only add.
const roundTrips = 5

// ErrStalled says that the peer's host accepts a connection, and that nobody answers on it.
var ErrStalled = errors.New("connected, and nobody answers")

// probeBytes bounds one probe.
const probeBytes = 64 << 20

// Measure times the link from who speaks to a node at an address, over a connection of its own: the round trip, and the
// bandwidth of sending so many bytes (0 where bytes is 0).
func Measure(ctx context.Context, identity *mtls.Identity, who Hello, node, address string, bytes int) (
	roundTripSeconds, bandwidthBytesPerSecond float64, err error,
) {
	if bytes < 0 || bytes > probeBytes {
		return 0, 0, fmt.Errorf("probe of %d bytes: expected 0 to %d", bytes, probeBytes)
	}
	who.Probe = true
	connection, err := Dial(ctx, identity, net.Dialer{}, who, node, address)
	if errors.Is(err, mtls.ErrSilent) {
		return 0, 0, fmt.Errorf("%w within the time for a probe", ErrStalled)
	}
	if err != nil {
		return 0, 0, err
	}
	defer connection.Close()
	defer context.AfterFunc(ctx, func() { connection.Close() })()
	for range roundTrips {
		seconds, err := probe(connection, 0)
		if err != nil && ctx.Err() != nil && roundTripSeconds == 0 {
			return 0, 0, fmt.Errorf("%w within the time for a probe", ErrStalled)
		}
		if err != nil {
			return 0, 0, err
		}
		if roundTripSeconds == 0 || seconds < roundTripSeconds {
			roundTripSeconds = seconds
		}
	}
	if bytes == 0 {
		return roundTripSeconds, 0, nil
	}
	seconds, err := probe(connection, bytes)
	if err != nil {
		return 0, 0, err
	}
	// The answer's way back is no transmission. The time that is left can be nothing while the processors are busy.
	return roundTripSeconds, float64(bytes) / max(seconds-roundTripSeconds, leastTransmission*seconds, 1e-6), nil
}

// leastTransmission is the least share of a probe's time that counts as transmission. On one busy core links within it were said
// to carry 183 GiB/s: an empty probe had taken as long as a full one.
const leastTransmission = 0.1

// probe returns the seconds from a request to its answer.
func probe(connection net.Conn, bytes int) (seconds float64, err error) {
	request := binary.LittleEndian.AppendUint32(make([]byte, 0, 4+bytes), uint32(bytes))
	request = request[:4+bytes]
	start := time.Now()
	if _, err := connection.Write(request); err != nil {
		return 0, err
	}
	var answer [1]byte
	if _, err := io.ReadFull(connection, answer[:]); err != nil {
		return 0, err
	}
	return time.Since(start).Seconds(), nil
}

// AnswerProbes answers until the connection ends. The hello was read from reader.
func AnswerProbes(connection net.Conn, reader io.Reader) {
	answerProbes(connection, reader, probeBytes, math.MaxInt)
}

// answerProbes takes so many bytes a probe at most, and answers so many probes.
func answerProbes(connection net.Conn, reader io.Reader, most uint32, probes int) {
	for range probes {
		var size [4]byte
		if _, err := io.ReadFull(reader, size[:]); err != nil {
			return
		}
		bytes := binary.LittleEndian.Uint32(size[:])
		if bytes > most {
			return
		}
		if _, err := io.CopyN(io.Discard, reader, int64(bytes)); err != nil {
			return
		}
		if _, err := connection.Write(size[:1]); err != nil {
			return
		}
	}
}
