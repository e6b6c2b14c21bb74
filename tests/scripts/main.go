// The command scripts runs scripts that are wrong in one way each, as a new user would, and tells where the product says what is wrong
// with them and after how long. Two minutes are the most that a person may be left without an answer.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"sync"
	"syscall"
	"time"
)

const (
	patience = 2 * time.Minute
	atATime  = 4 // they wait more than they compute
)

// outcome is what became of a row.
type outcome struct {
	seconds float64
	missing string // words that nobody said
	err     error  // the row could not be tried
	said    string // the end of what was said instead
}

func main() {
	program, python := flag.String("reknit", "bin/reknit", "the command"), flag.String("python", "python3", "that runs the scripts")
	only := flag.String("only", "", "rows of one wrong script; empty: all")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	outcomes := tryAll(ctx, func(r row) bool { return *only == "" || r.wrong == *only }, stage{program: *program, python: *python})
	if failed := report(outcomes); failed > 0 {
		stop()
		os.Exit(1)
	}
}

// tryAll tries the rows that are wanted, some at a time. Others' outcomes are left out.
func tryAll(ctx context.Context, wanted func(row) bool, s stage) map[int]outcome {
	outcomes, turns := map[int]outcome{}, make(chan struct{}, atATime)
	var mutex sync.Mutex
	var trying sync.WaitGroup
	for i, r := range rows {
		if !wanted(r) {
			continue
		}
		turns <- struct{}{}
		trying.Go(func() {
			defer func() { <-turns }()
			came := s.try(ctx, r)
			mutex.Lock()
			defer mutex.Unlock()
			outcomes[i] = came
		})
	}
	trying.Wait()
	return outcomes
}

// report writes a line a row, and returns how many were not told.
func report(outcomes map[int]outcome) (failed int) {
	for i, r := range rows {
		came, tried := outcomes[i]
		if !tried {
			continue
		}
		verdict := fmt.Sprintf("said after %.1f s", came.seconds)
		if came.err != nil {
			verdict = "NOT TRIED: " + came.err.Error()
		} else if came.missing != "" {
			verdict = fmt.Sprintf("NOT SAID within %v: %s\n%s", r.limit(), came.missing, indented(came.said))
		}
		if came.err != nil || came.missing != "" {
			failed++
		}
		fmt.Printf("%-14s %-45s %-7s %s\n", r.wrong, r.what, r.where, verdict)
	}
	fmt.Printf("%d of %d scripts were told what is wrong with them\n", len(outcomes)-failed, len(outcomes))
	return failed
}

func indented(text string) string {
	return "\t" + strings.ReplaceAll(strings.TrimSpace(text), "\n", "\n\t")
}
