package inventory

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/reknit/reknit/events"
	"github.com/reknit/reknit/services/reknit/connect"
	"github.com/reknit/reknit/services/reknit/tell"
	"github.com/reknit/reknit/shared/bus"
)

const linksHelp = `Lists what is known of the links between nodes, in each direction, or of those of some nodes. It comes from the last request
for a plan and from what was measured, lost, cut or connected since. Where very many links are known, a request lists those that
are not as usual, and says what the usual one is like.`

// Link is a link in one direction.
type Link struct {
	events.Link
	Measured *time.Time `json:"measured,omitempty"` // left out where it was before the last request for a plan
}

// linkList is the links that are known.
type linkList struct {
	Links []Link        `json:"links"`
	Usual *events.Usual `json:"usual,omitempty"` // what those are like that are not listed
}

// Links is `reknit links`.
func Links() *cobra.Command {
	return show(&cobra.Command{
		Use: "links [NODE...]", Short: "list the links: round trip, bandwidth, what is lost or cut", Long: linksHelp,
		Args: cobra.ArbitraryArgs,
	}, links)
}

func links(ctx context.Context, b *bus.Bus, of []string) (list linkList, err error) {
	request, sequence, err := lastRequest(ctx, b)
	if err != nil {
		return list, err
	}
	for _, link := range request.Links {
		list.Links = append(list.Links, Link{Link: link})
	}
	list.Usual = request.Usual
	kinds := []events.Kind{events.LinkMeasured, events.LinkLost, events.LinkRestored, events.ConnectRequested, events.DisconnectRequested}
	if err := connect.Read(ctx, b, kinds, connect.Span{After: sequence}, list.take); err != nil {
		return list, err
	}
	if len(of) > 0 {
		list.Links = slices.DeleteFunc(list.Links,
			func(link Link) bool { return !slices.Contains(of, link.From) && !slices.Contains(of, link.To) })
	}
	slices.SortFunc(list.Links, func(a, b Link) int { return cmp.Or(cmp.Compare(a.From, b.From), cmp.Compare(a.To, b.To)) })
	return list, nil
}

// take hears what became of a link. That it was asked for is not yet that it is so, and is all that the log tells of it
// before the next plan.
func (l *linkList) take(event events.Event) {
	switch event.Kind {
	case events.LinkMeasured:
		if measured, err := events.Open[events.Measurement](event); err == nil {
			link := l.of(measured.From, measured.To)
			link.Measurement, link.Measured = measured, &event.Logged
		}
	case events.LinkLost, events.LinkRestored:
		if state, err := events.Open[events.LinkState](event); err == nil {
			l.of(state.From, state.To).Lost = event.Kind == events.LinkLost
			l.of(state.To, state.From).Lost = event.Kind == events.LinkLost
		}
	case events.ConnectRequested, events.DisconnectRequested:
		if asked, err := events.Open[events.LinkRequest](event); err == nil {
			l.of(asked.From, asked.To).Disconnected = event.Kind == events.DisconnectRequested
			l.of(asked.To, asked.From).Disconnected = event.Kind == events.DisconnectRequested
		}
	}
}

// of returns a link, which it adds where it is not known.
func (l *linkList) of(from, to string) *Link {
	at := slices.IndexFunc(l.Links, func(link Link) bool { return link.From == from && link.To == to })
	if at < 0 {
		at = len(l.Links)
		l.Links = append(l.Links, Link{Link: events.Link{Measurement: events.Measurement{From: from, To: to}}})
	}
	return &l.Links[at]
}

func (linkList) wrong() error { return nil }

func (l linkList) tell(w io.Writer) {
	if len(l.Links) == 0 {
		fmt.Fprintf(w, "No link was measured: each is taken for %s/s and %s.\n", tell.Bytes(events.AssumedBytesPerSecond),
			tell.Seconds(events.AssumedRoundTripSeconds))
	}
	table := tell.Table(w)
	for i, link := range l.Links {
		if i == 0 {
			fmt.Fprintln(table, "from\tto\tround trip\tbandwidth\tstate")
		}
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\n", link.From, link.To, link.figures(), link.state())
	}
	table.Flush()
	if l.Usual != nil {
		fmt.Fprintf(w, "The others are like the usual one: %s, %s/s.\n", tell.Seconds(l.Usual.RoundTripSeconds),
			tell.Bytes(int64(l.Usual.BandwidthBytesPerSecond)))
	}
}

func (l Link) figures() string {
	if l.BandwidthBytesPerSecond == 0 {
		return "-\t-"
	}
	return tell.Seconds(l.RoundTripSeconds) + "\t" + tell.Bytes(int64(l.BandwidthBytesPerSecond)) + "/s"
}

func (l Link) state() string {
	switch {
	case l.Disconnected:
		return "cut on purpose"
	case l.Lost:
		return "lost"
	case l.BandwidthBytesPerSecond == 0:
		return "not measured"
	case l.Measured != nil:
		return "measured " + l.Measured.Local().Format("01-02 15:04:05")
	}
	return "measured"
}
