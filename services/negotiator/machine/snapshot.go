package machine

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/reknit/reknit/events"
	"github.com/reknit/reknit/services/negotiator/protocol"
)

// readers reports whether anybody who takes part may be able to read snapshots.
func (m *Machine) readers(changes []events.Change) bool {
	return slices.ContainsFunc(m.state.participants(changes), func(node *member) bool { return node.Snapshots })
}

// mayAsk reports whether members may be able to read snapshots that they were not asked for. Usually nobody is: to list
// them takes longer than all else that a recovery takes.
func (m *Machine) mayAsk() bool {
	opening := m.state.Negotiation.Opening
	return m.heedsSnapshots() && !opening.Snapshots && m.readers(opening.Changes)
}

// misreading returns who may be unable to read what a failed attempt went back to: who is to blame, or all whose offers differ where nobody can
// tell who is right. A receiver of which the restorer tells has offered what it read.
func (m *Machine) misreading(failure events.Failure, blamed string) []string {
	switch {
	case m.cause.Source == restorer && (len(failure.Givers) == 0 || failure.Node == ""):
		return failure.Givers
	case blamed == "":
		return nil
	}
	return []string{blamed}
}

// noteMisread has the next attempt do without the units of a snapshot in which a node differed from others, and without all that it reads
// of the snapshot if no unit is named, or others differ then: it has an older one perhaps. A node that could not read another one, too, is not
// asked for any: what it reads is nothing, or not what others have. Readers that differ, of whom one may be right, are asked for older
// ones as often as they differ.
func (m *Machine) noteMisread(node, reason string, units []events.Range, differs bool) {
	snapshot := m.state.Negotiation.Snapshot
	if snapshot.Plan == "" {
		return
	}
	if differs {
		m.state.Differ = reason
	}
	key := misreadKey(node, snapshot)
	again := m.misreads(key)
	if len(units) > 0 && !again {
		for unit := range events.Each(units) {
			m.state.Misread[misreadUnit(key, unit)] = true
		}
		return
	}
	if !again && !differs && m.misreads(node) {
		m.state.Misread[node] = true
	}
	m.state.Misread[key] = true
}

// misreads reports whether something of a snapshot, or of a node's, was misread.
func (m *Machine) misreads(of string) bool {
	for key := range m.state.Misread {
		if strings.HasPrefix(key, of+" ") {
			return true
		}
	}
	return false
}

// readable returns the units of a snapshot that were not misread.
func (m *Machine) readable(key string, units []events.Range) []events.Range {
	if !m.misreads(key) {
		return units
	}
	var read []events.Range
	for unit := range events.Each(units) {
		if !m.state.Misread[misreadUnit(key, unit)] {
			read = append(read, events.Range{First: unit, End: unit + 1})
		}
	}
	return read
}

func misreadUnit(key string, unit int) string { return fmt.Sprint(key, " ", unit) }

func misreadKey(node string, snapshot protocol.Snapshot) string {
	return fmt.Sprint(node, " ", snapshot.Plan, " ", snapshot.ConsumedSamples)
}

// readAgain has snapshots that could not be read count again: what kept somebody from it may be mended.
func (t *troubles) readAgain() {
	clear(t.Misread)
	t.Differ = ""
}

// counts reports whether a snapshot is of the history that counts. Training of an older plan beyond the step from which a later one went on
// was undone. A snapshot of it would have samples trained twice, and others never. It may also be of a job that a user gave up. The plan
// behind which generations go on counts where several told of it, though nobody is left to tell it.
func (m *Machine) counts(snapshot events.Snapshot) bool {
	isNewest := snapshot.Plan == m.state.PlanDigest || snapshot.Plan == m.state.Recall.Floor.Plan && m.isCertain(m.state.Recall.Floor)
	return m.state.Plan == nil || isNewest || m.state.History.Counts(snapshot.Plan, snapshot.Step)
}

// stored returns what members can read of snapshots. Every unit is verified when it is read, so that whoever is there
// may say so.
func (m *Machine) stored() []protocol.Stored {
	var stored []protocol.Stored
	consents := m.state.Negotiation.Consents
	for _, node := range slices.Sorted(maps.Keys(consents)) {
		if m.state.Misread[node] {
			continue
		}
		for _, snapshot := range consents[node].Snapshots {
			if !m.counts(snapshot) {
				continue
			}
			of := protocol.Snapshot{Plan: snapshot.Plan, ConsumedSamples: snapshot.ConsumedSamples}
			key := misreadKey(node, of)
			if m.state.Misread[key] {
				continue
			}
			for _, units := range m.readable(key, snapshot.Units) {
				held := protocol.Held{Node: node, First: units.First, End: units.End, Steps: []uint64{snapshot.Step}}
				stored = append(stored, protocol.Stored{Held: held, Snapshot: of})
			}
		}
	}
	return stored
}
