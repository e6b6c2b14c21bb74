package speed

import "testing"

func TestOnlyASpeedThatChangedByHalfIsNews(t *testing.T) {
	var m Meter
	measure := func(factor float64) (told float64, news bool) {
		for range measuredSteps {
			m.Pass(1, 1/factor)
			told, news = m.Step()
		}
		return told, news
	}
	for _, step := range []struct {
		factor float64
		news   bool
	}{{1.2, false}, {0.5, true}, {0.6, false}, {1.1, true}} {
		factor, news := measure(step.factor)
		if news != step.news || factor < 0.99*step.factor || factor > 1.01*step.factor {
			t.Fatalf("measured %v, news %v; want %v, %v", factor, news, step.factor, step.news)
		}
	}
}
