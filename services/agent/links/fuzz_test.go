package links

import (
	"bytes"
	"encoding/binary"
	"net"
	"testing"
)

func FuzzHello(f *testing.F) {
	f.Add(Hello{Cluster: "c", Node: "n1", Incarnation: "1", Probe: true}.Bytes())
	f.Add(binary.LittleEndian.AppendUint16(nil, helloBytes+1))
	f.Fuzz(func(t *testing.T, sent []byte) {
		reader := bytes.NewReader(sent)
		hello, err := ReadHello(reader, "c")
		if read := len(sent) - reader.Len(); read > 2+helloBytes {
			t.Errorf("%d bytes were taken for a hello, expected %d at most", read, 2+helloBytes)
		}
		if err != nil {
			return
		}
		back, err := ReadHello(bytes.NewReader(hello.Bytes()), "c")
		if len(hello.Bytes()) > 2+helloBytes {
			return // what it escapes can make it longer than a hello may be
		}
		if err != nil || back != hello {
			t.Errorf("%+v came back as %+v, %v", hello, back, err)
		}
	})
}

// counter is a connection that counts what is answered.
type counter struct {
	net.Conn
	answered int
}

func (c *counter) Write(data []byte) (int, error) {
	c.answered += len(data)
	return len(data), nil
}

// Each probe is answered by one byte, once all of it is there: nobody is made to send more than was sent.
func FuzzProbes(f *testing.F) {
	empty := make([]byte, 4)
	f.Add(empty)
	f.Add(append(binary.LittleEndian.AppendUint32(nil, 3), "abc\x00\x00\x00\x00"...))
	f.Add(binary.LittleEndian.AppendUint32(nil, probeBytes+1))
	f.Fuzz(func(t *testing.T, sent []byte) {
		expected := 0
		for rest := sent; len(rest) >= 4; expected++ {
			bytes := binary.LittleEndian.Uint32(rest)
			if rest = rest[4:]; bytes > probeBytes || int(bytes) > len(rest) {
				break
			}
			rest = rest[bytes:]
		}
		connection := new(counter)
		AnswerProbes(connection, bytes.NewReader(sent))
		if connection.answered != expected {
			t.Errorf("%d probes were answered, expected %d", connection.answered, expected)
		}
	})
}
