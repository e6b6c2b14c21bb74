package events

import "fmt"

// Keeping is a request on KeepSubject: a node asks another one to keep its part of a snapshot in memory, and to fetch
// it from the shard store of who asks.
type Keeping struct {
	Node string `json:"node"` // who asks
	Step uint64 `json:"step"` // completed steps
	Plan string `json:"plan"` // digest of the plan under which the step was trained
	// ConsumedSamples is the position in the data, after the step.
	ConsumedSamples uint64 `json:"consumedSamples"`

	ShardAddress string     `json:"shardAddress"`
	Bytes        int64      `json:"bytes"` // of the units, which are fetched one after the other
	Parts        []Part     `json:"parts"` // of these bytes
	Units        []KeptUnit `json:"units"`
}

// KeptUnit is a unit of a part of a snapshot.
type KeptUnit struct {
	Unit  int   `json:"unit"`
	Bytes int64 `json:"bytes"`
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
	var c check
	c.token("node", k.Node)
	c.digest("plan", k.Plan)
	c.that(k.ShardAddress != "" && len(k.ShardAddress) <= 256, "shardAddress", "host:port", k.ShardAddress)
	c.that(len(k.Units) >= 1 && len(k.Units) <= MostUnits, "units", fmt.Sprintf("1 to %d", MostUnits), len(k.Units))
	c.each(len(k.Units), "units", func(i int) error {
		var c check
		c.unit(k.Units[i].Unit)
		c.atLeast("bytes", k.Units[i].Bytes, 1)
		c.layerBytes("bytes", k.Units[i].Bytes)
		return c.err
	})
	if c.err == nil {
		c.that(k.Bytes == k.unitBytes(), "bytes", fmt.Sprintf("%d, for the units", k.unitBytes()), k.Bytes)
		c.parts(k.Parts, k.Bytes)
	}
	return c.err
}
