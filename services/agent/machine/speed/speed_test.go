package speed

import (
	"testing"

	"github.com/reknit/reknit/events"
)

func TestTheFirstSpeedIsNewsAndThenOnlyOneThatChangedByHalf(t *testing.T) {
	var m Meter
	m.Switch()
	for range warmSteps {
		m.Pass(1, 1000)
		if _, news := m.Step(); news {
			t.Fatal("a step that warms caches is measured")
		}
	}
	measure := func(factor float64) (told float64, news bool) {
		for range max(m.window, measuredSteps) {
			m.Pass(1, 1/factor)
			told, news = m.Step()
		}
		return told, news
	}
	for _, step := range []struct {
		factor float64
		news   bool
	}{{0.7, true}, {0.9, false}, {1.2, true}, {0.5, true}, {0.6, false}, {1.1, true}} {
		factor, news := measure(step.factor)
		if news != step.news || factor < 0.99*step.factor || factor > 1.01*step.factor {
			t.Fatalf("measured %v, news %v; want %v, %v", factor, news, step.factor, step.news)
		}
	}
}

func TestASpeedThatWaversIsToldOfLessAndLessOften(t *testing.T) {
	var m Meter
	news := 0
	for step := range 20_000 {
		m.Pass(1, float64(1+step/measuredSteps%2*9))
		if _, isNews := m.Step(); isNews {
			news++
		}
	}
	if news > 11 {
		t.Errorf("told %d times in 20000 steps: expected log2(20000/20) at most, and the first", news)
	}
}

// witness is a profiler of a node that trains the last two of three layers, of a second forward and two backward each.
func witness(node string) *Profiler {
	plan := &events.Plan{Generation: 3, Pipelines: []events.Pipeline{{Stages: []events.Stage{
		{Node: "n1", Layers: events.Range{First: 0, End: 1}}, {Node: "n2", Layers: events.Range{First: 1, End: 3}},
	}}}}
	for range events.MostWitnesses - 1 {
		plan.Pipelines = append(plan.Pipelines, events.Pipeline{Stages: []events.Stage{{Node: "others", Layers: events.Range{End: 3}}}})
	}
	plan.Pipelines = append(plan.Pipelines, events.Pipeline{Stages: []events.Stage{{Node: "sixth", Layers: events.Range{First: 1, End: 3}}}})
	layer := events.LayerProfile{ParameterBytes: 1, ForwardSeconds: 1, BackwardSeconds: 2}
	p := new(Profiler)
	p.Switch(plan, &events.Job{Layers: []events.LayerProfile{layer, layer, layer}}, node)
	return p
}

// train trains steps in which layers take so many times what is declared.
func train(p *Profiler, steps int, times float64) (told events.Profile, news int) {
	for step := range steps {
		for layer := 1; layer < 3; layer++ {
			for _, backward := range []bool{false, true} {
				seconds := times
				if backward {
					seconds *= 2
				}
				p.Meter.Pass(seconds/times, seconds)
				p.Layers.Pass(layer, backward, 0.5, seconds/2)
				p.Layers.Pass(layer, backward, 0.5, seconds/2)
			}
		}
		if profile, isNews := p.Step(uint64(step + 1)); isNews {
			told = profile
			news++
		}
	}
	return told, news
}

func TestWhatLayersTakeIsToldOnce(t *testing.T) {
	p := witness("n2")
	told, news := train(p, 200, 3)
	if news != 1 || told.Generation != 3 || told.MicroBatchSeconds != 18 || told.SpeedFactor != 1.0/3 {
		t.Errorf("told %d times, at last %+v", news, told)
	}
	if told.FirstLayer != 1 || len(told.Layers) != 2 || told.Layers[1] != (events.LayerCost{ForwardSeconds: 3, BackwardSeconds: 6}) {
		t.Errorf("told that layers from %d on take %+v", told.FirstLayer, told.Layers)
	}
	if told.Node = "n2"; told.Validate() != nil {
		t.Error(told.Validate())
	}
}

func TestOnlyTheFirstNodesThatTrainALayerTellWhatItTakes(t *testing.T) {
	if told, news := train(witness("sixth"), 200, 3); news != 1 || told.Layers != nil || told.MicroBatchSeconds != 18 {
		t.Errorf("the sixth told %d times, at last %+v: expected its speed alone", news, told)
	}
}

func TestWhatATrainerMeasuresItselfIsToldWhereItIsNews(t *testing.T) {
	p := witness("n2")
	costs := []events.LayerCost{{ForwardSeconds: 1, BackwardSeconds: 1, ActivationBytes: 100}, {ForwardSeconds: 1, BackwardSeconds: 3, ActivationBytes: 100}}
	told, news := p.Measured(22, costs, 1000, 400)
	if !news || told.MicroBatchSeconds != 6 || told.SpeedFactor != 1 || told.PeakBytes != 1000 || told.OtherBytes != 400 || len(told.Layers) != 2 {
		t.Errorf("news: %v, %+v", news, told)
	}
	if told, news = p.Measured(44, costs, 1100, 500); news {
		t.Errorf("%+v is news, and nothing differs by half", told)
	}
	if told, news = p.Measured(66, costs, 1100, 900); !news || told.Layers != nil || told.OtherBytes != 900 {
		t.Errorf("news: %v, %+v: expected memory alone", news, told)
	}
	if _, news = p.Measured(88, costs[:1], 9000, 9000); news {
		t.Error("what is not about all of the node's layers is taken for a measurement of them")
	}
}

func TestUnderEachPlanTheFirstSpeedIsMeasuredOverAsManySteps(t *testing.T) {
	var m Meter
	for plan := range 3 {
		m.Switch()
		step, seconds := 0, 1+9*float64(plan%2)
		for news := false; !news; step++ {
			if step > warmSteps+measuredSteps {
				t.Fatalf("plan %d: no speed after %d steps", plan, step)
			}
			m.Pass(1, seconds)
			_, news = m.Step()
		}
	}
}
