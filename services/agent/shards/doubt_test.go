package shards

import (
	"errors"
	"testing"
	"time"
)

// corruptPart has the first source give the first chunk of a part, the second the rest; the bytes are not those of the digest.
func corruptPart(t *testing.T) (s *simulation, part *fetched) {
	t.Helper()
	s = simulate(1, 100e6, 100e6, 100e6)
	part = s.queue.pieces[0].part
	part.into = content(50, testPart)
	first := s.queue.take(s.queue.peers[0], s.now)
	s.give(first, chunkBytes)
	s.queue.stall(first, s.now, defaultStall)
	s.now = s.now.Add(time.Minute)
	rest := s.queue.take(s.queue.peers[1], s.now)
	if rest.next != chunkBytes {
		t.Fatalf("the second source is asked from byte %d on", rest.next)
	}
	if !s.give(rest, testPart-chunkBytes) {
		t.Fatal("not complete")
	}
	s.queue.release(rest, s.now)
	if err := s.queue.corrupted(part); err != nil || s.blamed() != [3]int{} {
		t.Fatalf("%v: %v are blamed, expected nobody yet", err, s.blamed())
	}
	return s, part
}

func (s *simulation) give(c *claim, bytes int64) (complete bool) {
	offset, wanted, hashes := s.queue.reserve(c, c.next, bytes, s.now)
	return s.queue.stored(c, offset, wanted, hashes)
}

func (s *simulation) blamed() (parts [3]int) {
	for i, p := range s.queue.peers {
		parts[i] = p.corrupt
	}
	return parts
}

// sumsOf are a manifest's checksums, of which some are of other bytes.
func sumsOf(part *fetched, others ...int) []uint32 {
	var sums []uint32
	for i := range part.there {
		sums = append(sums, checksum(part.bytesOf(i)))
	}
	for _, i := range others {
		sums[i]++
	}
	return sums
}

func TestOnlyTheChunksThatChecksumsSpeakAgainstAreFetchedAgain(t *testing.T) {
	s, part := corruptPart(t)
	third := s.queue.take(s.queue.peers[2], s.now)
	if err := s.queue.sift(third, sumsOf(part, 2, 3), s.now); err != nil || third.next != third.end {
		t.Fatalf("%v, and %+v goes on", err, third)
	}
	s.queue.release(third, s.now)
	if again := s.queue.take(s.queue.peers[1], s.now); again != nil {
		t.Fatalf("who gave them is asked for %+v", again)
	}
	again := s.queue.take(s.queue.peers[0], s.now)
	if again == nil || again.next != 2*chunkBytes || again.end != 4*chunkBytes || len(s.queue.pieces) != 0 {
		t.Fatalf("asked for %+v, expected the third chunk and the fourth", again)
	}
	part.into[3*chunkBytes] ^= 1
	if !s.give(again, 2*chunkBytes) {
		t.Fatal("not complete")
	}
	if err := s.queue.verified(part); err != nil || s.blamed() != [3]int{0, 1, 0} {
		t.Errorf("%v, %v are blamed, expected who gave the chunk that is another one now", err, s.blamed())
	}
}

func TestASourceWhoseBytesAreNotThoseOfItsChecksumsIsToBlame(t *testing.T) {
	s, part := corruptPart(t)
	own := s.queue.take(s.queue.peers[1], s.now)
	if err := s.queue.sift(own, sumsOf(part, 1), s.now); !errors.Is(err, errSpoilt) || !part.doubted {
		t.Errorf("got %v, the part is doubted: %t", err, part.doubted)
	}
}

// Another writer tells none; a forger's are those of its bytes.
func TestAPartThatNoChecksumsExplainIsAskedWholeOfOneAfterTheOther(t *testing.T) {
	s, part := corruptPart(t)
	for i, p := range s.queue.peers[:2] {
		whole := s.queue.take(p, s.now)
		if whole == nil || whole.next != 0 || whole.end != testPart {
			t.Fatalf("source %d is asked for %+v", i, whole)
		}
		if err := s.queue.sift(whole, sumsOf(part)[:i*len(part.there)], s.now); !errors.Is(err, errAbsent) {
			t.Fatalf("got %v, expected that others are asked first", err)
		}
		s.queue.absent(whole, s.now)
	}
	for i, p := range []*peer{s.queue.peers[2], s.queue.peers[0], s.queue.peers[1]} {
		whole := s.queue.take(p, s.now)
		if part.doubted {
			if err := s.queue.sift(whole, nil, s.now); err != nil || part.left != testPart {
				t.Fatalf("%v, %d bytes are missing", err, part.left)
			}
		}
		s.now = s.now.Add(time.Minute)
		if other := s.queue.take(s.queue.peers[i], s.now); other != nil {
			t.Fatalf("a second source is asked for %+v", other)
		}
		s.give(whole, testPart)
		s.queue.release(whole, s.now)
		if err := s.queue.corrupted(part); (i == 2) != errors.Is(err, ErrCorrupt) || p.corrupt != 1 {
			t.Fatalf("after source %d: %v", i, err)
		}
	}
}

// The checksums of a liar accuse who gave the right bytes.
func TestNobodyIsBlamedOnChecksumsAlone(t *testing.T) {
	s, part := corruptPart(t)
	liar := s.queue.take(s.queue.peers[2], s.now)
	if err := s.queue.sift(liar, sumsOf(part, 0), s.now); err != nil {
		t.Fatal(err)
	}
	s.queue.release(liar, s.now)
	s.give(s.queue.take(s.queue.peers[2], s.now), chunkBytes)
	if err := s.queue.corrupted(part); err != nil || part.doubted || part.left != testPart {
		t.Fatalf("%v, %d bytes are missing, expected that all is fetched anew", err, part.left)
	}
	whole := s.queue.take(s.queue.peers[0], s.now.Add(time.Minute))
	s.give(whole, testPart)
	if err := s.queue.verified(part); err != nil || s.blamed() != [3]int{} {
		t.Errorf("%v, %v are blamed", err, s.blamed())
	}
}
