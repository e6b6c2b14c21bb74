// Package links measures the links of a node and notices when a peer's process is gone.
package links

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
)

// Hello says who speaks. It opens every connection.
type Hello struct {
	Cluster     string `json:"cluster"`
	Node        string `json:"node"`
	Incarnation string `json:"incarnation,omitempty"`
	Probe       bool   `json:"probe,omitempty"` // the connection measures the link, and carries nothing else
}

const helloBytes = 1 << 10

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
