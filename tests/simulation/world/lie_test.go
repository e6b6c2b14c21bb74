package world

import (
	"flag"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/reknit/reknit/events"
)

var allLies = flag.Bool("lies", false, "tell every lie; else each twenty-ninth, and those that once did harm")

const liar = "n3"

// harmful are the lies that once stopped others for longer, or had them given up.
var harmful = []string{
	"lie n3 shard.offered digest other", "lie n3 shard.offered bytes far", "lie n3 shard.offered unit zero",
	"blurt n3 restoration.failed", "lie n3 restoration.failed node empty; blurt n3 restoration.failed",
}

// life has a node say whatever it may have to say: others join, leave, fail and break steps, and so does it.
var life = []Fault{
	{8 * time.Second, "start n9"}, {14 * time.Second, "break n1"}, {20 * time.Second, "reset n3 for 9s"}, {40 * time.Second, "disconnect n1 n2"},
	{46 * time.Second, "leave n4"}, {60 * time.Second, "start n10; start n11; start n12"},
	{100 * time.Second, "kill n2 for 3s"}, {150 * time.Second, "kill n3 for 2s"},
}

// A member with every permission lies from its fifth second on, in one field of whatever it says, or says what nothing asked for
// again and again. It does not hold alone what the others need: whoever does is believed, for nobody knows better.
func TestWhoLiesStopsNobodyElseForLongerThanOneNegotiationAndChangesNoModel(t *testing.T) {
	var trials sync.WaitGroup
	defer trials.Wait()
	free := make(chan struct{}, runtime.GOMAXPROCS(0))
	for _, cluster := range []Cluster{
		{Seed: 1, Nodes: 5, Layers: 4, Kind: events.DataParallel}, {Seed: 2, Nodes: 6, Layers: 4, Stages: 2},
	} {
		settings := negotiatorSettings(cluster)
		most := settings.AnswerTimeout + settings.TransferTime
		for _, words := range liesToTell() {
			free <- struct{}{}
			trials.Go(func() {
				defer func() { <-free }()
				w, longest := trial(t, cluster, words)
				if longest > most || len(w.Violations) > 0 {
					t.Errorf("%v, %s: training stood still for %v, expected at most %v; %v", cluster, words, longest, most, w.Violations)
				}
				if strings.Contains(words, "blurt") && w.byName(liar).lied == 0 {
					t.Errorf("%v, %s: it was never said", cluster, words)
				}
				if testing.Verbose() {
					fmt.Printf("%s told %d times: %v\n", words, w.byName(liar).lied, longest.Round(10*time.Millisecond))
				}
			})
		}
	}
}

func liesToTell() []string {
	words := append([]string{"slow n3 1"}, harmful...) // the first is no lie
	for i, lie := range Lies(liar) {
		if *allLies || i%29 == 0 {
			words = append(words, lie)
		}
		if _, about, isField := strings.Cut(lie, "lie "); isField && *allLies {
			words = append(words, lie+"; blurt "+strings.Join(strings.Fields(about)[:2], " "))
		}
	}
	return words
}

// trial plays a life with a liar, and returns how long training stood still at most.
func trial(t *testing.T, cluster Cluster, words string) (w *World, longest time.Duration) {
	w = New(cluster, false)
	at, newest := time.Duration(0), uint64(0)
	w.Stepped = func(step uint64) {
		if step > newest {
			if newest > 0 {
				longest = max(longest, w.now-at)
			}
			newest, at = step, w.now
		}
	}
	for _, fault := range append([]Fault{{5 * time.Second, words}}, life...) {
		w.run(fault.At)
		for one := range strings.SplitSeq(fault.Words, "; ") {
			if err := w.Do(one); err != nil {
				t.Error(err)
			}
		}
	}
	w.Run(20 * time.Second)
	w.othersGoOn("slow n3 1") // it lies on
	w.judge()
	return w, max(longest, w.now-at)
}
