package ledger_test

import (
	"fmt"

	"github.com/reknit/reknit/shared/ledger"
)

// Five samples stand in another order in each epoch, and in each once.
func ExampleOrder_At() {
	order := ledger.Order{Samples: 5, Seed: 1}
	for position := range uint64(10) {
		fmt.Print(order.At(position), " ")
	}
	// Output:
	// 2 4 1 3 0 1 2 3 0 4
}

// A plan of generation 2 goes on at step 1, so that what was trained beyond it under the plan before counts for nothing. Its first step
// leaves four samples out.
func ExampleCheck() {
	plans := []ledger.Plan{
		{Generation: 1, GlobalBatch: 8},
		{Generation: 2, GlobalBatch: 8, ResumeStep: 1, Consumed: 8},
	}
	entries := []ledger.Entry{
		{Generation: 1, Step: 0, First: 0, End: 8},
		{Generation: 1, Step: 1, First: 8, End: 16},
		{Generation: 2, Step: 1, First: 12, End: 16},
	}
	fmt.Println(ledger.Check(plans, entries, 1))
	fmt.Println(ledger.Check(plans, entries, 2))
	// Output:
	// <nil>
	// step 1, generation 2: samples 8 to 12 were skipped
}
