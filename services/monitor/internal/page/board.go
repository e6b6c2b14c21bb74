package page

import (
	"crypto/rand"
	"fmt"
	"strconv"
	"strings"
	"sync"

	"github.com/reknit/reknit/services/monitor/machine/view"
)

// board is the board of one run of the page, for many readers.
type board struct {
	run     string // another run numbers anew
	mutex   sync.Mutex
	parts   *view.Board
	changed chan struct{} // closed once something is new
}

func newBoard() *board {
	return &board{run: rand.Text(), parts: view.NewBoard(), changed: make(chan struct{})}
}

func (b *board) put(parts map[string][]byte) {
	b.mutex.Lock()
	defer b.mutex.Unlock()
	if b.parts.Put(parts) {
		close(b.changed)
		b.changed = make(chan struct{})
	}
}

// since returns what a reader has not seen, and what tells it that there is more.
func (b *board) since(version uint64) (news []view.News, now uint64, anew bool, more <-chan struct{}) {
	b.mutex.Lock()
	defer b.mutex.Unlock()
	news, now, anew = b.parts.Since(version)
	return news, now, anew, b.changed
}

// name is how a reader calls a version when it comes back.
func (b *board) name(version uint64) string { return fmt.Sprintf("%s-%d", b.run, version) }

// named returns the version of a name; zero where it is of another run, or none.
func (b *board) named(name string) uint64 {
	run, number, _ := strings.Cut(name, "-")
	version, err := strconv.ParseUint(number, 10, 64)
	if run != b.run || err != nil {
		return 0
	}
	return version
}
