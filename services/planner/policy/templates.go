package policy

import (
	"fmt"
	"slices"

	"github.com/reknit/reknit/services/planner/estimate"
	"github.com/reknit/reknit/services/planner/search"
)

// templates keeps a template for each length of pipeline, which is the best split of the layers for so many nodes, and
// gives each pipeline that lost nodes the template of the length that is left (Oobleck). A pipeline too short for any
// template takes idle nodes, then borrows from the longest, and is merged into the shortest where none can lend. All nodes
// keep their order, and nobody else moves.
//
// Oobleck gives all pipelines of one length one number of micro-batches, whose sum must be the batch; here they are dealt so
// that the slowest pipeline is as fast as possible, which always has an answer and is kinder.
func templates(s Situation) ([]Candidate, error) {
	if len(s.Current) == 0 {
		return nil, nil
	}
	if err := s.continues(); err != nil {
		return nil, err
	}
	book, crews, err := s.manned()
	if err != nil {
		return nil, err
	}
	if len(crews) < s.DataParallel.Least {
		return nil, fmt.Errorf("%d pipelines are left, expected at least %d", len(crews), s.DataParallel.Least)
	}
	batches := search.OptimalBatches(s.MicroBatches, len(crews), func(p, microBatches int) float64 {
		return book.seconds(len(crews[p]), microBatches)
	})
	pipelines := make([]Pipeline, len(crews))
	for p, crew := range crews {
		pipelines[p].MicroBatches = batches[p]
		for st, layers := range book.splits[len(crew)] {
			pipelines[p].Stages = append(pipelines[p].Stages, Stage{Node: crew[st], Layers: layers})
		}
	}
	return []Candidate{s.figured(pipelines)}, nil
}

// manned is the templates, and crews long enough for them. Fewer pipelines may keep more of a partitioned optimizer state, then
// templates are longer, and crews may be fewer still.
func (s Situation) manned() (book *templateBook, crews [][]string, err error) {
	for pipelines := len(s.Current); ; pipelines = len(crews) {
		some := s.withPipelines(pipelines)
		if book, err = some.newTemplateBook(); err != nil {
			return nil, nil, err
		}
		if crews, err = book.regrouped(s.crews()); err != nil || s.mostKept(len(crews)) <= some.KeptPartitions {
			return book, crews, err
		}
	}
}

// crews returns the nodes that each pipeline of the plan in force has left, in their order, and the nodes without a place.
func (s Situation) crews() (crews [][]string, idle []string) {
	idle, alive := slices.Clone(s.Nodes), s.alive()
	for _, pipeline := range s.Current {
		var crew []string
		for _, stage := range pipeline.Stages {
			if alive[stage.Node] {
				crew = append(crew, stage.Node)
			}
		}
		crews = append(crews, crew)
	}
	placed := map[string]bool{}
	for _, node := range slices.Concat(crews...) {
		placed[node] = true
	}
	return crews, slices.DeleteFunc(idle, func(node string) bool { return placed[node] })
}

// templateBook holds the templates by length.
type templateBook struct {
	Situation
	splits            map[int][]estimate.Range
	shortest, longest int
	times             map[[2]int]float64 // by length and micro-batches
}

// newTemplateBook makes the templates of all lengths that fit into memory with as many micro-batches in flight as a
// pipeline may have.
func (s Situation) newTemplateBook() (*templateBook, error) {
	book := &templateBook{Situation: s, splits: map[int][]estimate.Range{}, times: map[[2]int]float64{}}
	longest := min(len(s.Layers), len(s.Nodes))
	if s.PipelineLength.Most > 0 {
		longest = min(longest, s.PipelineLength.Most)
	}
	var failure error
	for length := longest; length >= max(1, s.PipelineLength.Least); length-- {
		found, err := search.Best(search.Problem{
			Nodes: length, NodeMemoryBytes: slices.Min(s.MemoryBytes), Layers: s.Layers, MicroBatches: max(length, s.MicroBatches/len(s.Current)),
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
		return nil, joined(failure)
	}
	return book, nil
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
	b.times[key] = b.pipelineSeconds(b.splits[length], microBatches)
	return b.times[key]
}
