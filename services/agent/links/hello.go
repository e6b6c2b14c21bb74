// Package links measures the links of a node and notices when a peer's process is gone.
package links

import (
	"bufio"
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"time"

	"github.com/reknit/reknit/services/agent/mtls"
)

// Hello says who speaks. It opens every connection.
type Hello struct {
	Cluster     string `json:"cluster"`
	Node        string `json:"node"`
	Incarnation string `json:"incarnation,omitempty"`
	Probe       bool   `json:"probe,omitempty"` // the connection measures the link, and carries nothing else
	Asks        string `json:"asks,omitempty"`  // of a probe: the process that alone is to answer; empty: whoever is there
}

const helloBytes = 1 << 10

var helloTimeout = 5 * time.Second // for a new connection to say, and to prove, who it is

// Dial connects to an address, has a node there prove that it is that node, and says who speaks. The end of ctx ends what
// is under way, and not the connection.
func Dial(ctx context.Context, identity *mtls.Identity, dialer net.Dialer, who Hello, node, address string) (net.Conn, error) {
	connection, err := dialer.DialContext(ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, helloTimeout)
	defer cancel()
	secured, err := identity.Connect(ctx, connection, node)
	if err == nil {
		_, err = secured.Write(who.Bytes())
	}
	if err != nil {
		connection.Close()
		return nil, err
	}
	return secured, nil
}

// Accept hears who speaks on a connection that was accepted, and has it prove that. All that follows is read from
// reader.
func Accept(ctx context.Context, identity *mtls.Identity, cluster string, connection net.Conn) (
	who Hello, secured net.Conn, reader *bufio.Reader, err error,
) {
	connection.SetDeadline(time.Now().Add(helloTimeout))
	if secured, err = identity.Accept(ctx, connection); err != nil {
		return who, nil, nil, err
	}
	reader = bufio.NewReaderSize(secured, 64<<10)
	if who, err = ReadHello(reader, cluster); err != nil {
		return who, nil, nil, err
	}
	connection.SetDeadline(time.Time{})
	return who, secured, reader, mtls.Check(secured, who.Node)
}

// Bytes returns the hello as it travels.
func (h Hello) Bytes() []byte {
	text, err := json.Marshal(h)
	if err != nil {
		panic(err) // strings and a bool
	}
	return append(binary.LittleEndian.AppendUint16(nil, uint16(len(text))), text...)
}

// ReadHello refuses a speaker of another cluster.
func ReadHello(r io.Reader, cluster string) (Hello, error) {
	var size [2]byte
	if _, err := io.ReadFull(r, size[:]); err != nil {
		return Hello{}, err
	}
	length := binary.LittleEndian.Uint16(size[:])
	if length > helloBytes {
		return Hello{}, fmt.Errorf("hello of %d bytes: expected at most %d", length, helloBytes)
	}
	text := make([]byte, length)
	if _, err := io.ReadFull(r, text); err != nil {
		return Hello{}, err
	}
	var h Hello
	if err := json.Unmarshal(text, &h); err != nil {
		return Hello{}, fmt.Errorf("hello: %w", err)
	}
	if h.Cluster != cluster {
		return Hello{}, fmt.Errorf("hello of cluster %.80q: expected %q", h.Cluster, cluster)
	}
	return h, nil
}
