// Package recovery is how other systems go on after a loss: Oobleck with templates, Varuna and Pollux with a restart
// from a checkpoint. Their plans are weighed by our cost model, beside ours. Optimizer state that is partitioned is not
// theirs.
package recovery

import (
	"fmt"
	"slices"

	"github.com/reknit/reknit/services/planner/estimate"
	"github.com/reknit/reknit/services/planner/policy"
	"github.com/reknit/reknit/services/planner/search"
)

// Templates keeps a template for each length of pipeline, which is the best split of the layers for so many nodes, and
// gives each pipeline that lost nodes the template of the length that is left (Oobleck). A pipeline too short for any
// template takes idle nodes, then borrows from the longest, and is merged into the shortest where none can lend. All
// nodes keep their order, and nobody else moves.
//
// Oobleck gives all pipelines of one length one number of micro-batches, whose sum must be the batch; here they are
// dealt so that the slowest pipeline is as fast as possible, which always has an answer and is kinder.
func Templates(s policy.Situation) (policy.Candidate, error) {
	book, err := newTemplateBook(s)
	if err != nil {
		return policy.Candidate{}, err
	}
	crews, err := book.regrouped(crewsOf(s))
	if err != nil {
		return policy.Candidate{}, err
	}
	batches := search.OptimalBatches(s.MicroBatches, len(crews), func(p, microBatches int) float64 {
		return book.seconds(len(crews[p]), microBatches)
	})
	pipelines := make([]policy.Pipeline, len(crews))
	for p, crew := range crews {
		pipelines[p].MicroBatches = batches[p]
		for st, layers := range book.splits[len(crew)] {
			pipelines[p].Stages = append(pipelines[p].Stages, policy.Stage{Node: crew[st], Layers: layers})
		}
	}
	return policy.Judge(s, "templates", pipelines)
}

// crewsOf returns the nodes that each pipeline of the plan in force has left, in their order, and the nodes without a
// place.
func crewsOf(s policy.Situation) (crews [][]string, idle []string) {
	idle = slices.Clone(s.Nodes)
	for _, pipeline := range s.Current {
		var crew []string
		for _, stage := range pipeline.Stages {
			if at := slices.Index(idle, stage.Node); at >= 0 {
				crew, idle = append(crew, stage.Node), slices.Delete(idle, at, at+1)
			}
		}
		crews = append(crews, crew)
	}
	return crews, idle
}

// templateBook holds the templates by length.
type templateBook struct {
	situation         policy.Situation
	splits            map[int][]estimate.Range
	shortest, longest int
	times             map[[2]int]float64 // by length and micro-batches
}

// newTemplateBook makes the templates of all lengths that fit into memory with as many micro-batches in flight as a
// pipeline may have.
func newTemplateBook(s policy.Situation) (*templateBook, error) {
	book := &templateBook{situation: s, splits: map[int][]estimate.Range{}, times: map[[2]int]float64{}}
	var failure error
	for length := longestOf(s); length >= max(1, s.PipelineLength.Least); length-- {
		found, err := search.Best(search.Problem{
			Nodes: length, NodeMemoryBytes: slices.Min(s.MemoryBytes), Layers: s.Layers,
			MicroBatches:    max(length, s.MicroBatches/len(s.Current)),
			TransferSeconds: s.Network.TransferSeconds, DataParallel: search.Limits{Least: 1, Most: 1},
			PipelineLength: search.Limits{Least: length, Most: length},
		})
		if err != nil {
			failure = err
			break // shorter ones need more memory still
		}
		book.splits[length] = found.Pipelines[0].Stages
		book.shortest, book.longest = length, max(book.longest, length)
	}
	if len(book.splits) == 0 {
		return nil, fmt.Errorf("no template: %w", failure)
	}
	return book, nil
}

// longestOf is the most stages that a pipeline can have.
func longestOf(s policy.Situation) int {
	longest := min(len(s.Layers), len(s.Nodes))
	if s.PipelineLength.Most > 0 {
		longest = min(longest, s.PipelineLength.Most)
	}
	return longest
}

// regrouped makes every crew long enough for a template, and none too long.
func (b *templateBook) regrouped(crews [][]string, idle []string) ([][]string, error) {
	for p := range crews {
		spare := max(0, len(crews[p])-b.longest)
		idle = append(idle, crews[p][len(crews[p])-spare:]...)
		crews[p] = crews[p][:len(crews[p])-spare]
	}
	for p := 0; p < len(crews); {
		taken := min(max(0, b.shortest-len(crews[p])), len(idle))
		crews[p] = append(crews[p], idle[:taken]...)
		idle = idle[taken:]
		b.borrow(crews, p)
		if len(crews[p]) >= b.shortest {
			p++
			continue
		}
		if len(crews) == 1 {
			return nil, fmt.Errorf("%d nodes are left, a template takes at least %d", len(crews[p]), b.shortest)
		}
		crew := crews[p]
		crews = slices.Delete(crews, p, p+1)
		into := shortestOf(crews)
		crews[into] = append(crews[into], crew...)
		spare := max(0, len(crews[into])-b.longest)
		idle = append(idle, crews[into][len(crews[into])-spare:]...)
		crews[into] = crews[into][:len(crews[into])-spare]
		p = min(p, into)
	}
	return crews, nil
}

// borrow takes the last node of the longest crew until crew p is long enough, or no crew can lend.
func (b *templateBook) borrow(crews [][]string, p int) {
	for len(crews[p]) < b.shortest {
		from := 0
		for q := range crews {
			if len(crews[q]) > len(crews[from]) {
				from = q
			}
		}
		last := len(crews[from]) - 1
		if last < b.shortest {
			return
		}
		crews[p] = append(crews[p], crews[from][last])
		crews[from] = crews[from][:last]
	}
}

func shortestOf(crews [][]string) int {
	at := 0
	for p := range crews {
		if len(crews[p]) < len(crews[at]) {
			at = p
		}
	}
	return at
}

// seconds is the time of a template for so many micro-batches.
func (b *templateBook) seconds(length, microBatches int) float64 {
	key := [2]int{length, microBatches}
	if seconds, known := b.times[key]; known {
		return seconds
	}
	s := b.situation
	timed := estimate.OfLayers(s.Layers, b.splits[length], microBatches, s.Network.TransferSeconds)
	b.times[key] = estimate.OneForwardOneBackward(timed).MakespanSeconds
	return b.times[key]
}
