package events

import "fmt"

// Keeping is a request on KeepSubject: a node asks another one to keep its part of a snapshot in memory, and to fetch
// it from the shard store of who asks.
type Keeping struct {
	Node string `json:"node" is:"token"`  // who asks
	Step uint64 `json:"step"`             // completed steps
	Plan string `json:"plan" is:"digest"` // digest of the plan under which the step was trained
	// ConsumedSamples is the position in the data, after the step.
	ConsumedSamples uint64 `json:"consumedSamples"`

	ShardAddress string     `json:"shardAddress" is:"address"`
	Bytes        int64      `json:"bytes"` // of the units, which are fetched one after the other
	Parts        []Part     `json:"parts"` // of these bytes
	Units        []KeptUnit `json:"units" is:"count=1..4096"`
}

// KeptUnit is a unit of a part of a snapshot.
type KeptUnit struct {
	Unit  int   `json:"unit" is:"max=4095"`
	Bytes int64 `json:"bytes" is:"min=1,max=281474976710656"`
}

// KeepReply is the answer to Keeping.
type KeepReply struct {
	Reason string `json:"reason,omitempty"` // why the part is not kept; empty where it is
}

// unitBytes returns how many bytes the units have.
func (k *Keeping) unitBytes() int64 {
	bytes := int64(0)
	for _, unit := range k.Units {
		bytes += unit.Bytes
	}
	return bytes
}

func (k *Keeping) Validate() error {
	c := within(k)
	c.rule("kept", k.Bytes == k.unitBytes(), "bytes", fmt.Sprintf("%d, for the units", k.unitBytes()), k.Bytes)
	c.parts("parts", k.Parts, k.Bytes)
	return c.err
}
