package institutions

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/reknit/reknit/events"
	planner "github.com/reknit/reknit/services/planner/machine"
	"github.com/reknit/reknit/services/trainer/gradient"
	"github.com/reknit/reknit/services/trainer/model"
	"github.com/reknit/reknit/services/trainer/oracle"
	"github.com/reknit/reknit/services/trainer/text"
)

const (
	batch   = 12
	context = 4
	window  = 5
)

// institution has a text of its own, and trains its samples in their order.
type institution struct {
	samples *text.Text
	place   int // in its own data
}

// study is three institutions: of sums, of a stock list that is ten times as long, and of rhymes.
type study struct {
	*testing.T
	shape  model.Shape
	all    *text.Text
	places map[string]*institution
	layers []*model.Layer
	plan   *events.Plan
}

func begin(t *testing.T) *study {
	t.Helper()
	s := &study{T: t, places: map[string]*institution{}}
	var everything string
	for _, words := range []struct {
		name, line string
		count      int
	}{
		{"sums", "%d plus one. ", 40}, {"stock", "%d boxes of bolts and nuts. ", 200},
		{"rhymes", "%d little mice in a row. ", 60},
	} {
		var content strings.Builder
		for i := range words.count {
			fmt.Fprintf(&content, words.line, i*i%17)
		}
		everything += content.String()
		s.places[words.name] = &institution{samples: s.text(content.String())}
	}
	s.all = s.text(everything)
	s.shape = model.Shape{
		Context: context, Window: window, Width: 12, Hidden: 18, Blocks: 2, Vocabulary: len(s.all.Vocabulary()),
	}
	var err error
	if s.layers, err = oracle.NewLayers(s.shape, 5); err != nil {
		t.Fatal(err)
	}
	return s
}

// alphabet has every text begin with all characters that any has, so that all have one vocabulary.
const alphabet = " .0123456789abcdefghiklmnopqrstuwx"

func (s *study) text(content string) *text.Text {
	s.Helper()
	samples, err := text.New([]byte(alphabet+content), context, window, 3)
	if err != nil {
		s.Fatal(err)
	}
	return samples
}

// members has the planner plan for those who are there.
func (s *study) members(names ...string) {
	s.Helper()
	request := events.PlanRequest{
		Negotiation: "g", Cluster: "c", Generation: 1, SecondsBetweenFailures: 3600,
		Job: events.Job{
			Digest: events.Digest(nil), Kind: events.DataParallel, Data: events.LocalData,
			GlobalBatch: batch, MicroBatch: 1,
			Layers: make([]events.LayerProfile, s.shape.Layers()),
		},
	}
	for _, name := range names {
		request.Nodes = append(request.Nodes, events.Device{
			Member: events.Member{Node: name, Incarnation: "a"}, MemoryBytes: 1 << 30, SpeedFactor: 1,
			Samples: int64(s.places[name].samples.Windows()),
		})
	}
	proposal, err := planner.New(planner.Settings{Cluster: "c", MinReplicas: 2}).Plan(request)
	if err != nil {
		s.Fatal(err)
	}
	s.plan = &proposal.Plan
}

// train trains so many steps by the plan. Each institution trains its own samples, and its gradient weighs as the plan
// says.
func (s *study) train(steps int) {
	s.Helper()
	for range steps {
		sums := oracle.NewSums(s.shape)
		for _, member := range s.plan.Nodes {
			count := 0
			for _, samples := range s.plan.SamplesOf(member.Node) {
				count += samples.Count()
			}
			own, worker := s.places[member.Node], oracle.NewWorker(s.shape)
			if err := worker.AccumulateRange(s.layers, own.samples, own.place, own.place+count); err != nil {
				s.Fatal(err)
			}
			own.place += count
			share := s.plan.WeightOf(member.Node) * batch / float64(count)
			for i, layer := range worker.Sums.Layers {
				scale(layer, share)
				if err := sums.Layers[i].Merge(layer); err != nil {
					s.Fatal(err)
				}
			}
		}
		var err error
		if s.layers, err = oracle.Update(s.layers, sums, model.DefaultAdam(), batch); err != nil {
			s.Fatal(err)
		}
	}
}

func scale(sum *gradient.Accumulator, factor float64) {
	for i, value := range sum.Sums {
		sum.Sums[i] = int64(math.Round(float64(value) * factor))
	}
}

// loss is that of layers on all data.
func (s *study) loss(layers []*model.Layer, of *text.Text) float64 {
	s.Helper()
	worker := oracle.NewWorker(s.shape)
	if err := worker.AccumulateRange(layers, of, 0, of.Windows()); err != nil {
		s.Fatal(err)
	}
	return worker.Sums.Loss.Mean(0)
}

func TestEachInstitutionWeighsAsMuchAsItsData(t *testing.T) {
	s := begin(t)
	s.members("sums", "stock")
	sums, stock := s.places["sums"].samples.Windows(), s.places["stock"].samples.Windows()
	if got, want := s.plan.WeightOf("stock"), float64(stock)/float64(sums+stock); math.Abs(got-want) > 1e-12 {
		t.Errorf("stock weighs %v, expected %v", got, want)
	}
	if got := s.plan.SamplesOf("stock")[0].Count(); got != batch/2 {
		t.Errorf("stock trains %d samples a step: expected half of them, as it is no faster", got)
	}
}

func TestTrainingOnDataThatStaysWhereItIsConvergesAsOnAllInOnePlace(t *testing.T) {
	const steps = 150
	s := begin(t)
	before := s.loss(s.layers, s.all)
	s.members("sums", "stock", "rhymes")
	s.train(steps)
	apart := s.loss(s.layers, s.all)
	central := oracle.Training{Shape: s.shape, Adam: model.DefaultAdam(), Seed: 5, GlobalBatch: batch, Steps: steps}
	_, losses, err := oracle.Run(central, s.all, nil)
	if err != nil {
		t.Fatal(err)
	}
	together := losses[steps-1]
	t.Logf("loss %.2f before, %.2f after training apart, %.2f in the last step in one place", before, apart, together)
	if apart > 0.6*before || apart > 1.2*together {
		t.Errorf("loss is %v of %v before: expected about %v, as in one place", apart, before, together)
	}
}

func TestDataJoinAndLeaveWithTheirInstitution(t *testing.T) {
	s := begin(t)
	s.members("stock", "sums")
	s.train(75)
	without := s.loss(s.layers, s.places["rhymes"].samples)
	s.members("stock", "sums", "rhymes")
	s.train(75)
	with := s.loss(s.layers, s.places["rhymes"].samples)
	t.Logf("loss of rhymes %.2f before they joined, %.2f after 75 steps with them", without, with)
	if with > 0.7*without {
		t.Errorf("once rhymes joined their loss goes from %v to %v", without, with)
	}
	s.members("sums", "rhymes")
	if weight := s.plan.WeightOf("sums") + s.plan.WeightOf("rhymes"); math.Abs(weight-1) > 1e-12 {
		t.Errorf("those who are left weigh %v", weight)
	}
	s.train(50)
	if later := s.loss(s.layers, s.places["rhymes"].samples); later > with {
		t.Errorf("once stock has left the loss of rhymes goes from %v to %v", with, later)
	}
}
