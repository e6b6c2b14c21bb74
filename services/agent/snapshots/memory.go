package snapshots

import (
	"slices"
	"sync"

	"gocloud.dev/blob"
	"gocloud.dev/blob/memblob"
)

// Memory is what nodes keep in memory of snapshots, their own and those of neighbours, for longer than a session: the next
// trainer of a node goes on from it. In sum it is bounded by what nodes with a session might keep at a time. Its methods
// may be called by several goroutines.
type Memory struct {
	mutex sync.Mutex
	kept  []kept // the last that took a snapshot at the end
	most  int64  // bytes that nodes with a session might keep at a time
}

type kept struct {
	node   string
	of     string // cluster and job
	bucket *blob.Bucket
	bytes  int64 // that it may hold
	inUse  bool  // by a session
}

// open returns what a node keeps of a job, or an empty bucket, which is not kept yet: the job may be refused.
func (m *Memory) open(node, of string) *blob.Bucket {
	m.mutex.Lock()
	defer m.mutex.Unlock()
	if at := m.find(node); at >= 0 && m.kept[at].of == of {
		m.kept[at].inUse = true
		return m.kept[at].bucket
	}
	return memblob.OpenBucket(nil)
}

// keep keeps what a node has opened, in place of what it kept of another job. Nodes without a session lose what they keep if all that is
// kept is too much, those first that took a snapshot the longest ago: trainers that failed may come back under other names.
func (m *Memory) keep(opened kept) {
	m.mutex.Lock()
	defer m.mutex.Unlock()
	if at := m.find(opened.node); at >= 0 {
		m.kept = slices.Delete(m.kept, at, at+1)
	}
	opened.inUse = true
	m.kept = append(m.kept, opened)
	all, inUse := int64(0), int64(0)
	for _, k := range m.kept {
		all += k.bytes
		if k.inUse {
			inUse += k.bytes
		}
	}
	m.most = max(m.most, inUse)
	m.kept = slices.DeleteFunc(m.kept, func(k kept) bool {
		drops := all > m.most && !k.inUse
		if drops {
			all -= k.bytes
		}
		return drops
	})
}

// rest has a node keep what it opened without a session.
func (m *Memory) rest(bucket *blob.Bucket) {
	m.mutex.Lock()
	defer m.mutex.Unlock()
	for i := range m.kept {
		if m.kept[i].bucket == bucket {
			m.kept[i].inUse = false
		}
	}
}

// forget drops what a node keeps.
func (m *Memory) forget(node string) {
	m.mutex.Lock()
	defer m.mutex.Unlock()
	if at := m.find(node); at >= 0 {
		m.kept = slices.Delete(m.kept, at, at+1)
	}
}

func (m *Memory) find(node string) int {
	return slices.IndexFunc(m.kept, func(k kept) bool { return k.node == node })
}
