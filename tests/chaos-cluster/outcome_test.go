package main

import (
	"fmt"
	"testing"

	"github.com/reknit/reknit/tests/invariants"
)

func TestAGapIsExcusedWhereTheLedgerHasWrittenAllOfIt(t *testing.T) {
	result := outcome{ledger: map[uint64]string{5: "a", 6: "b", 8: "c"}}
	for gap, excused := range map[[2]uint64]bool{{4, 7}: true, {4, 6}: true, {6, 9}: false, {3, 6}: false, {7, 7}: false} {
		violation := invariants.Violation{Sequence: gap[1], What: fmt.Sprint("follows ", gap[0])}
		if result.fills(violation) != excused {
			t.Errorf("from %d to %d: expected %t", gap[0], gap[1], excused)
		}
	}
	if result.fills(invariants.Violation{Sequence: 7, What: "was told before"}) {
		t.Error("what is no gap is excused")
	}
}
