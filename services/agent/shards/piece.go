package shards

import (
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"github.com/nats-io/nats.go"
)

// piece is what a reader claims of a part, and a store puts as an object of its own: a range that begins and ends where chunks do.
type piece struct {
	digest     string // of the part
	first, end int64  // in the part; both zero: all of it, however long that is
}

// name is the object's. A whole part has its digest for a name.
func (p piece) name() string {
	if p.whole() {
		return p.digest
	}
	return fmt.Sprintf("%s.%d-%d", p.digest, p.first, p.end)
}

func (p piece) whole() bool { return p.end == 0 }

// chunks is the subject token under which the chunks of every put of a piece lie.
func (p piece) chunks() string {
	sum := strings.TrimPrefix(p.digest, "sha256:")
	if p.whole() {
		return sum
	}
	return fmt.Sprintf("%s.%d-%d", sum, p.first, p.end)
}

// of returns the bytes of a piece of a part. It reports false where the part has no such piece.
func (p piece) of(part []byte) ([]byte, bool) {
	if p.whole() {
		return part, true
	}
	size := int64(len(part))
	if p.first < 0 || p.first >= p.end || p.end > size || p.first%chunkBytes != 0 || p.end%chunkBytes != 0 && p.end != size {
		return nil, false
	}
	return part[p.first:p.end], true
}

// parsePiece reads a name. It reports false where name would not return just that.
func parsePiece(name string) (piece, bool) {
	digest, borders, ranged := strings.Cut(name, ".")
	p := piece{digest: digest}
	if !ranged {
		return p, true
	}
	first, end, _ := strings.Cut(borders, "-")
	p.first, _ = strconv.ParseInt(first, 10, 64)
	p.end, _ = strconv.ParseInt(end, 10, 64)
	return p, p.name() == name
}

// parseWant reads what a reader asks for: a piece, and where its first chunks are to go.
func parseWant(said string) (wanted piece, push push, ok bool) {
	name, rest, pushed := strings.Cut(said, " ")
	wanted, ok = parsePiece(name)
	if pushed {
		var there bool
		push, there = parsePush(rest)
		ok = ok && there
	}
	return wanted, push, ok
}

// push is the first chunks of a piece, which a giver has the bucket send as soon as each is there: they go below the reader's inbox,
// to one number after the other.
type push struct {
	chunks int64
	below  string // a token
	first  uint64
}

func (p push) String() string { return fmt.Sprintf("%d %s.%d", p.chunks, p.below, p.first) }

var pushBelow = regexp.MustCompile(`^[A-Za-z0-9]{1,64}$`)

func parsePush(said string) (p push, ok bool) {
	chunks, to, _ := strings.Cut(said, " ")
	below, first, _ := strings.Cut(to, ".")
	var errChunks, errFirst error
	p.below = below
	p.chunks, errChunks = strconv.ParseInt(chunks, 10, 64)
	p.first, errFirst = strconv.ParseUint(first, 10, 64)
	return p, errors.Join(errChunks, errFirst) == nil && p.chunks > 0 && pushBelow.MatchString(below)
}

// to returns where the chunks of a push go, in the account of the giver.
func (p push) to(inbox string) (subjects []string) {
	for i := range p.chunks {
		subjects = append(subjects, fmt.Sprintf("%s%s.%s.%d", pushed, strings.TrimPrefix(inbox, nats.InboxPrefix), p.below, p.first+uint64(i)))
	}
	return subjects
}

// pushed is below what a giver has sent to readers: pushed.N.M arrives as _INBOX.N.M (accounts.go).
const pushed = "pushed."
