package overlay

import (
	"cmp"
	"slices"
	"time"

	"github.com/reknit/reknit/events"
)

// Link is a link in one direction.
type Link struct {
	events.Link
	Measured *time.Time `json:"measured,omitempty"` // left out where it was before the last request for a plan
}

// Links lists the links that are known, in the order of their ends, and what those are like that are not listed, where the last
// request for a plan said so.
func (o *Overlay) Links() (all []Link, usual *events.Usual) {
	for _, link := range o.links {
		all = append(all, *link)
	}
	slices.SortFunc(all, func(a, b Link) int { return cmp.Or(cmp.Compare(a.From, b.From), cmp.Compare(a.To, b.To)) })
	return all, o.usual
}

// takeLink hears what became of a link. A request for a change of a link does not yet mean that it is so. It is all that the log tells of
// the change before the next plan.
func (o *Overlay) takeLink(event events.Event) {
	switch event.Kind {
	case events.LinkMeasured:
		if measured, err := events.Open[events.Measurement](event); err == nil {
			link := o.of(measured.From, measured.To)
			link.Measurement, link.Measured = measured, &event.Logged
		}
	case events.LinkLost, events.LinkRestored:
		if state, err := events.Open[events.LinkState](event); err == nil {
			o.of(state.From, state.To).Lost = event.Kind == events.LinkLost
			o.of(state.To, state.From).Lost = event.Kind == events.LinkLost
		}
	case events.ConnectRequested, events.DisconnectRequested:
		if asked, err := events.Open[events.LinkRequest](event); err == nil {
			o.of(asked.From, asked.To).Disconnected = event.Kind == events.DisconnectRequested
			o.of(asked.To, asked.From).Disconnected = event.Kind == events.DisconnectRequested
		}
	}
}

// of returns a link, which it adds where it is not known.
func (o *Overlay) of(from, to string) *Link {
	at := direction{from, to}
	if o.links[at] == nil {
		o.links[at] = &Link{Link: events.Link{Measurement: events.Measurement{From: from, To: to}}}
	}
	return o.links[at]
}
