package main

import (
	"math/rand/v2"
	"slices"
	"time"
)

const day = 24 * time.Hour

// kind is a way in which a node fails and comes back.
type kind struct {
	name  string
	share float64 // of all failures
	// strike and mend are faults of tests/simulation. After mend the node runs again, or NEW in its place.
	strike, mend []string
	silent       bool // nobody says that it happens: it has to be found
}

// kinds are the failures of a node. A host that vanishes is silent to everybody, and another takes its place under a
// name of its own. A trainer that hangs is ended by its own agent, which starts another.
var kinds = []kind{
	{"killed", 0.4, []string{"kill NODE"}, []string{"start NODE"}, true},
	{
		"host lost", 0.2, []string{"cut NODE from hub for TIME", "cut NODE from peers for TIME", "pause NODE"},
		[]string{"kill NODE", "start NEW"}, true,
	},
	{"hangs", 0.2, []string{"hang NODE"}, nil, true},
	{"leaves", 0.2, []string{"leave NODE within 120"}, []string{"return NODE"}, false},
}

// longestAway is for how long a node that fails once a day stays away at most; half of that in the mean.
const longestAway = 30 * time.Minute

// failure is one that is due.
type failure struct {
	at, back time.Duration
	kind     kind
}

// failures draws when something fails: so many failures a node and day, at any time. Nodes that fail more often are back
// sooner, so that as many are there at any rate.
func failures(random *rand.Rand, nodes int, perDay float64, long time.Duration) []failure {
	var drawn []failure
	mean := float64(day) / float64(nodes) / perDay
	for at := calm; ; {
		at += time.Duration(random.ExpFloat64() * mean)
		if at >= long {
			return drawn
		}
		away := time.Minute + time.Duration(random.Int64N(int64(longestAway-time.Minute)))
		drawn = append(drawn, failure{at: at, back: at + time.Duration(float64(away)/perDay), kind: draw(random)})
	}
}

func draw(random *rand.Rand) kind {
	pick := random.Float64()
	i := slices.IndexFunc(kinds, func(k kind) bool { pick -= k.share; return pick < 0 })
	return kinds[max(i, 0)]
}
