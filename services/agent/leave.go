package agent

import (
	"maps"
	"slices"

	"github.com/reknit/reknit/events"
)

// exported is this node's shares of layers at a step, or of what it changed in them, for one receiver.
type exported struct {
	of     *trailOf
	step   uint64
	whole  bool
	shares []share
}

// share is a range of a layer's bytes, or of a change's.
type share struct {
	layer int
	first int64
	bytes int64 // of the whole
	data  []byte
}

// leave exports what is to be left at a boundary, on the trainer's goroutine.
func (l *trail) leave(done uint64, state PreCopier) {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	l.newest = done
	var due []*exported
	for _, receiver := range slices.Sorted(maps.Keys(l.trails)) {
		switch of := l.trails[receiver]; {
		case of.lost || !of.asked || of.begun && of.last == done || !of.begun && of.base > done:
		case !of.begun && of.base == done:
			of.begun, of.last = true, done
			due = append(due, &exported{of: of, step: done, whole: true})
		case of.begun && of.last+1 == done:
			of.last = done
			due = append(due, &exported{of: of, step: done})
		case of.begun:
			l.lose(of, "a step was left out")
		default:
			of.asked = false // it passed the step before it was asked
		}
	}
	for _, layer := range layersFrom(l.config.Node, l.Plan.Migration.Transfers) {
		l.export(layer, due, state)
	}
	for _, left := range due {
		select {
		case l.left <- left:
		default:
			l.lose(left.of, "its parts are stored too slowly")
		}
	}
	l.tell()
}

// export asks for a layer once, whoever follows it, and copies no more than this node's shares: they are in memory until they are
// stored.
func (l *trail) export(layer int, due []*exported, state PreCopier) {
	var whole, change []byte
	for _, left := range due {
		transfer, given := l.given(layer, left.of.receiver)
		if !given {
			continue
		}
		data, from := &change, state.Change
		if left.whole {
			data, from = &whole, state.Export
		}
		if *data == nil {
			var err error
			if *data, err = from(layer, left.step); err != nil {
				l.lose(left.of, err.Error())
				continue
			}
		}
		left.shares = append(left.shares, l.share(left, transfer, *data))
	}
}

func (l *trail) share(left *exported, transfer events.Transfer, data []byte) share {
	bytes := int64(len(data))
	if left.whole {
		left.of.sizes[transfer.Unit] = bytes
	}
	given, _ := rangeOf(l.config.Node, transfer)
	first, end := shareOf(given, transfer, l.Plan.Migration.ShardBytes, left.of.sizes[transfer.Unit], bytes)
	return share{transfer.Unit, first, bytes, slices.Clone(data[first:end])}
}

// given returns the transfer of a layer from this node to a receiver.
func (l *trail) given(layer int, receiver string) (events.Transfer, bool) {
	for _, transfer := range l.Plan.Migration.Transfers {
		if _, gives := rangeOf(l.config.Node, transfer); gives && transfer.To == receiver && transfer.Unit == layer {
			return transfer, true
		}
	}
	return events.Transfer{}, false
}

// manifest cuts a share into parts.
func (s share) manifest() events.PreCopied {
	layer := events.PreCopied{Unit: s.layer, Bytes: s.bytes}
	for part := range slices.Chunk(s.data, partBytes) {
		first := s.first
		if last := len(layer.Parts) - 1; last >= 0 {
			first = layer.Parts[last].End
		}
		layer.Parts = append(layer.Parts, events.Part{Digest: events.Digest(part), First: first, End: first + int64(len(part))})
	}
	return layer
}

// shareOf turns a range of shards of a layer into bytes of what a step changed in it, which may be longer or shorter.
func shareOf(share events.Range, transfer events.Transfer, shardBytes, layerBytes, bytes int64) (first, end int64) {
	first, end = byteRange(share, transfer, shardBytes, layerBytes)
	scaled := func(at int64) int64 { return int64(float64(at) / float64(layerBytes) * float64(bytes)) }
	if end == layerBytes {
		return scaled(first), bytes
	}
	return scaled(first), scaled(end)
}
