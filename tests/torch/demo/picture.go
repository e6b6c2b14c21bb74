package main

import (
	"fmt"
	"html"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/reknit/reknit/tests/torch"
)

// Measures of the picture, in pixels.
const (
	width   = 1200.0
	left    = 40.0
	right   = 200.0 // room for what is said of the last act
	lane    = 22.0
	top     = 150.0 // room for what happened
	curve   = 120.0 // height of the losses
	between = 30.0
)

// picture is drawn over time, a lane for each worker, and the losses over steps below.
type picture struct {
	strings.Builder
	from, until time.Time
	workers     []string
}

// draw writes what the workers completed when, and what became of the loss.
func draw(file string, steps []torch.Step, acts []act, undisturbed []float64) error {
	healed, err := torch.Losses(steps)
	if err != nil {
		return err
	}
	p := &picture{from: steps[0].At(), until: steps[len(steps)-1].At()}
	for _, step := range steps {
		if !slices.Contains(p.workers, step.Worker) {
			p.workers = append(p.workers, step.Worker)
		}
	}
	slices.Sort(p.workers)
	bottom := top + lane*float64(len(p.workers)) + between
	fmt.Fprintf(p, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %.0f %.0f" `, width+right, bottom+curve+between)
	p.WriteString(`font-family="sans-serif" font-size="11">` + "\n")
	fmt.Fprintf(p, `<rect width="100%%" height="100%%" fill="white"/>`+"\n")
	for _, act := range acts {
		p.act(act, bottom-between)
	}
	for i, worker := range p.workers {
		p.lane(worker, top+lane*float64(i), steps)
	}
	p.curve("undisturbed", "#d08000", 4, undisturbed, bottom)
	p.curve("disturbed", "#106030", 1.5, healed, bottom)
	fmt.Fprintf(p, `<text x="%.0f" y="%.0f">loss: undisturbed (wide), disturbed (narrow), over %d steps</text>`+"\n",
		left, bottom+curve+16, len(healed))
	p.WriteString("</svg>\n")
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return err
	}
	return os.WriteFile(file, []byte(p.String()), 0o644)
}

// x is the place of a moment.
func (p *picture) x(at time.Time) float64 {
	return left + (width-left)*at.Sub(p.from).Seconds()/p.until.Sub(p.from).Seconds()
}

// act draws a line at what happened, and says what.
func (p *picture) act(a act, bottom float64) {
	x := p.x(a.at)
	fmt.Fprintf(p, `<line x1="%.1f" y1="%.0f" x2="%.1f" y2="%.0f" stroke="#c00000" stroke-width="0.7"/>`+"\n",
		x, top-4, x, bottom)
	fmt.Fprintf(p, `<text transform="translate(%.1f %.0f) rotate(-35)">%s: %.2f s</text>`+"\n",
		x, top-8, html.EscapeString(a.what), max(0, a.Stall))
}

// lane draws a worker's steps, each from the step before it; what lies between is white where it waits.
func (p *picture) lane(worker string, y float64, steps []torch.Step) {
	fmt.Fprintf(p, `<text x="4" y="%.0f">%s</text>`+"\n", y+lane*0.7, worker)
	usual := torch.Usual(steps)
	for _, step := range steps {
		if step.Worker == worker {
			began := p.x(step.At().Add(-time.Duration(usual * float64(time.Second))))
			fmt.Fprintf(p, `<rect x="%.1f" y="%.0f" width="%.1f" height="%.0f" fill="#40a060"/>`+"\n",
				began, y, p.x(step.At())-began, lane-4)
		}
	}
}

// curve draws losses over steps.
func (p *picture) curve(name, colour string, stroke float64, losses []float64, y float64) {
	most := slices.Max(losses)
	fmt.Fprintf(p, `<polyline id="%s" fill="none" stroke="%s" stroke-width="%.1f" points="`, name, colour, stroke)
	for i, loss := range losses {
		fmt.Fprintf(p, "%.1f,%.1f ", left+(width-left)*float64(i)/float64(len(losses)), y+curve*(1-loss/most))
	}
	p.WriteString("\"/>\n")
}
