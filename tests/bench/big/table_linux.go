package main

import (
	"fmt"
	"os"
	"strings"
)

// String is a line for whoever looks on.
func (r row) String() string {
	line := fmt.Sprintf("%-18s next step %6.2f s  stall %6.2f s  step %.2f s", r.what, r.Next, r.Stall, r.Usual)
	if r.joined {
		line += fmt.Sprintf("  asked after %.1f s  %s in %.2f s  gives %.2f, takes %.2f states",
			r.begun, size(r.bytes), r.seconds, r.gives, r.takes)
	}
	return line
}

const (
	killSeconds = 0.3 // from a kill to the next step, and killSteps
	killSteps   = 2
	mostStates  = 1.2 // memory of an agent, the state included
)

// print prints the tables: what each scene cost, and how full the stores were.
func (s *stage) print(copyRate float64) {
	fmt.Printf("\n| | next step of all | stall of others | usual step | moved | in | x the bound | agent that gives | that takes |\n")
	fmt.Println("|" + strings.Repeat(" --- |", 9))
	for _, r := range s.rows {
		moved := "| | | | |"
		if r.joined {
			moved = fmt.Sprintf("%s | %.1f s | %.2f | %.2f states | %.2f states |",
				size(r.bytes), r.seconds, r.seconds*copyRate/float64(r.bytes), r.gives, r.takes)
		}
		fmt.Printf("| %s | %.2f s | %.2f s | %.2f s | %s\n", r.what, r.Next, r.Stall, r.Usual, moved)
	}
	s.judge()
	s.stores.print(os.Stdout)
}

// judge names what misses its target.
func (s *stage) judge() {
	for _, r := range s.rows {
		if most := killSeconds + killSteps*r.Usual; r.killed && r.Next > most {
			fmt.Printf("\n%s: next step after %.2f s, expected within %.2f s\n", r.what, r.Next, most)
		}
		if states := max(r.gives, r.takes); states > mostStates {
			fmt.Printf("\n%s: an agent takes %.2f states, expected at most %.1f\n", r.what, states, mostStates)
		}
	}
}
