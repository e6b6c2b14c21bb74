package view

import (
	"bytes"
	"cmp"
	"slices"
)

// Board keeps parts for many readers, of which each asks for what changed since it looked last. A reader that reads seldom finds the newest
// of each part, and no queue grows for anybody. Readers may keep what they read: a part is replaced and never altered.
type Board struct {
	version uint64
	parts   map[string]part
	gone    int    // parts that are gone, of which those who saw them have to hear
	floor   uint64 // who looked before it has to begin anew
}

type part struct {
	version uint64
	data    []byte // nil: it is gone
}

// mostGone is how many parts that are gone are remembered.
const mostGone = 1 << 12

// NewBoard returns an empty board.
func NewBoard() *Board { return &Board{parts: map[string]part{}} }

// Put replaces all parts, and tells whether any is another than it was. O(parts) and their bytes.
func (b *Board) Put(parts map[string][]byte) (changed bool) {
	before := b.version
	for key, data := range parts {
		if old := b.parts[key]; !bytes.Equal(old.data, data) || old.data == nil {
			b.set(key, data)
		}
	}
	for key, old := range b.parts {
		if _, stays := parts[key]; !stays && old.data != nil {
			b.set(key, nil)
		}
	}
	if b.gone > mostGone {
		b.forget()
	}
	return b.version > before
}

func (b *Board) set(key string, data []byte) {
	old, known := b.parts[key]
	if known && old.data == nil {
		b.gone--
	}
	if data == nil {
		b.gone++
	}
	b.version++
	b.parts[key] = part{b.version, data}
}

// forget drops what is gone: who has not heard of it begins anew.
func (b *Board) forget() {
	for key, old := range b.parts {
		if old.data == nil {
			delete(b.parts, key)
		}
	}
	b.gone, b.floor = 0, b.version
}

// News is a part that changed. Its data is JSON, null where the part is gone.
type News struct {
	Key  string
	Data []byte
}

// Since returns what changed since a version, in the order in which it did, and the version that it is now. anew says that all
// that the reader knew from before is to be forgotten; from zero on it knew nothing.
func (b *Board) Since(version uint64) (news []News, now uint64, anew bool) {
	if anew = version < b.floor || version > b.version; anew {
		version = 0
	}
	if version == b.version {
		return nil, version, anew
	}
	type versioned struct {
		News
		version uint64
	}
	var changed []versioned
	for key, part := range b.parts {
		switch {
		case part.version <= version || part.data == nil && version == 0:
		case part.data == nil:
			changed = append(changed, versioned{News{key, []byte("null")}, part.version})
		default:
			changed = append(changed, versioned{News{key, part.data}, part.version})
		}
	}
	slices.SortFunc(changed, func(a, b versioned) int { return cmp.Compare(a.version, b.version) })
	for _, one := range changed {
		news = append(news, one.News)
	}
	return news, b.version, anew
}
