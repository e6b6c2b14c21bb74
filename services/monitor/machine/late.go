package machine

import "time"

// mostLate bounds the nodes that came after the end: a cluster has no more.
const mostLate = 4096

// late are the nodes that asked for a place after the end of the job, by name, as long as nobody knows that they have gone.
type late map[string]*lateNode

type lateNode struct {
	node
	Came time.Time `json:"came"` // by the log's clock
}

// came notes a node. The one that came first goes where there are too many. O(1), and O(n) where it is full.
func (l late) came(name string, known *node, at time.Time) {
	l[name] = &lateNode{node: *known, Came: at}
	if len(l) <= mostLate {
		return
	}
	first := name
	for other, noted := range l {
		if before := noted.Came.Compare(l[first].Came); before < 0 || before == 0 && other < first {
			first = other
		}
	}
	delete(l, first)
}

// went forgets a node whose process has ended or was refused. One that has come in its place stays.
func (l late) went(name, incarnation string) {
	if noted := l[name]; noted != nil && noted.Incarnation == incarnation {
		delete(l, name)
	}
}
