package main

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/reknit/reknit/services/reknit/dev"
	"github.com/reknit/reknit/services/reknit/processes"
)

const seeds = 2000

func parsed(t *testing.T, churn churn) []dev.Action {
	t.Helper()
	actions, err := dev.ParseScript(strings.NewReader(churn.Script))
	if err != nil {
		t.Fatalf("seed %d: %v\n%s", churn.Seed, err, churn.Script)
	}
	return actions
}

func TestEveryScriptCanBePlayed(t *testing.T) {
	for seed := range uint64(seeds) {
		churn := churnOf(seed)
		actions := parsed(t, churn)
		if len(actions) != churn.Actions || len(actions) == 0 {
			t.Fatalf("seed %d: %d actions, said %d", seed, len(actions), churn.Actions)
		}
		last := uint64(0)
		for _, action := range actions {
			if action.AtStep != 0 && action.AtStep <= last || action.AtStep >= churn.Steps {
				t.Fatalf("seed %d: step %d after %d of %d\n%s", seed, action.AtStep, last, churn.Steps, churn.Script)
			}
			last = max(last, action.AtStep)
		}
	}
}

func TestThreeTrainersAlwaysStay(t *testing.T) {
	for seed := range uint64(seeds) {
		churn := churnOf(seed)
		alive := churn.Trainers
		for _, action := range parsed(t, churn) {
			switch {
			case action.Verb == "join":
				alive++
			case action.Verb == "leave", action.Verb == "kill" && !slices.Contains(processes.Services, action.Names[0]):
				alive--
			}
			if alive < leastTrainers || alive > mostTrainers {
				t.Fatalf("seed %d: %d trainers after line %d\n%s", seed, alive, action.Line, churn.Script)
			}
		}
	}
}

func TestKillsOfTrainersOverlapFromSeed21On(t *testing.T) {
	overlapping := 0
	for seed := range uint64(seeds) {
		churn := churnOf(seed)
		killed := false
		for _, action := range parsed(t, churn) {
			killed = killed && action.AtStep == 0
			if action.Verb != "kill" || action.Names[0] != dev.Any {
				continue
			}
			if killed && !churn.Overlaps {
				t.Fatalf("seed %d: line %d\n%s", seed, action.Line, churn.Script)
			}
			if killed {
				overlapping++
			}
			killed = true
		}
		if churn.Overlaps != (seed > 20) {
			t.Fatalf("seed %d: overlaps %v", seed, churn.Overlaps)
		}
	}
	if overlapping < seeds/4 {
		t.Errorf("%d kills of %d seeds overlap with another", overlapping, seeds)
	}
}

func TestNoServiceIsKilledTwiceInABurstAndNoTrainerComesTwice(t *testing.T) {
	for seed := range uint64(seeds) {
		churn := churnOf(seed)
		once, burst := map[string]bool{}, 0
		for _, action := range parsed(t, churn) {
			if action.AtStep != 0 {
				burst++
			}
			if action.Verb == "kill" && action.Names[0] == dev.Any {
				continue
			}
			key := fmt.Sprint(action.Verb, action.Names)
			if action.Verb == "kill" {
				key = fmt.Sprint(burst, key)
			}
			if (action.Verb == "kill" || action.Verb == "join") && once[key] {
				t.Fatalf("seed %d: line %d\n%s", seed, action.Line, churn.Script)
			}
			once[key] = true
		}
	}
}

func TestALinkIsConnectedOnlyAfterOneWasDisconnected(t *testing.T) {
	for seed := range uint64(seeds) {
		churn := churnOf(seed)
		cuts, burst := 0, 0
		for _, action := range parsed(t, churn) {
			if action.AtStep != 0 {
				burst = 0
			}
			switch action.Verb {
			case "disconnect":
				cuts, burst = cuts+1, burst+1
			case "connect":
				cuts--
			}
			if cuts < 0 || action.Verb == "connect" && burst > 0 {
				t.Fatalf("seed %d: line %d\n%s", seed, action.Line, churn.Script)
			}
		}
	}
}

func TestTheSameSeedIsTheSameScriptAndAllSeedsTogetherDoEverything(t *testing.T) {
	done := map[string]bool{}
	for seed := range uint64(200) {
		churn := churnOf(seed)
		if churn != churnOf(seed) {
			t.Fatalf("seed %d: two scripts", seed)
		}
		for _, action := range parsed(t, churn) {
			name := ""
			if action.Verb == "kill" {
				name = action.Names[0]
			}
			done[fmt.Sprint(action.Verb, " ", name, " in the middle: ", action.AtStep == 0)] = true
		}
	}
	if want := 2 * (len(processes.Services) + 1 + 4); len(done) != want {
		t.Fatalf("expected %d things to be done, got %v", want, done)
	}
}

// With as many pipelines as trainers that always stay, there is always a plan that keeps two copies of each partition.
func TestEveryThirdSeedHasPartitionsAndSomeOfThemFollow(t *testing.T) {
	count := map[bool]int{}
	for seed := range uint64(seeds) {
		churn := churnOf(seed)
		if churn.Partitioned {
			count[churn.Follows]++
		}
		if strings.Contains(strings.Join(churn.flags(), " "), "--pipelines 3 --optimizer-partitions 2") != churn.Partitioned {
			t.Fatalf("seed %d: flags %v", seed, churn.flags())
		}
	}
	if count[true] < seeds/7 || count[false] < seeds/7 {
		t.Errorf("%d and %d of %d seeds have partitions", count[true], count[false], seeds)
	}
}

func TestABurstHasATrainerForEachOfItsActions(t *testing.T) {
	uses := map[string]int{"kill": 1, "leave": 1, "connect": 2, "disconnect": 2}
	for seed := range uint64(seeds) {
		churn := churnOf(seed)
		alive, free := churn.Trainers, churn.Trainers
		for _, action := range parsed(t, churn) {
			if action.AtStep != 0 {
				free = alive
			}
			if slices.Contains(processes.Services, action.Names[0]) {
				continue
			}
			free -= uses[action.Verb]
			switch action.Verb {
			case "join":
				alive++
			case "kill", "leave":
				alive--
			}
			if free < 0 {
				t.Fatalf("seed %d: line %d\n%s", seed, action.Line, churn.Script)
			}
		}
	}
}
