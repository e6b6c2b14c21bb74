package inventory

import (
	"context"
	"fmt"
	"io"
	"slices"

	"github.com/spf13/cobra"

	"github.com/reknit/reknit/events"
	"github.com/reknit/reknit/services/monitor/machine/overlay"
	"github.com/reknit/reknit/services/reknit/connect"
	"github.com/reknit/reknit/services/reknit/tell"
	"github.com/reknit/reknit/shared/bus"
)

const linksHelp = `Lists what is known of the links between nodes, in each direction, or of those of some nodes. It comes from the last request
for a plan and from what was measured, lost, cut or connected since. Where very many links are known, a request lists those that
are not as usual, and says what the usual one is like, and those from one site to another where that differs.
Figures are what a node measured of the way to the other's address, by an echo of 512 KiB before it consents and of 256 KiB when the
monitor asks; within one machine that is memory. Under "give or take" stands by which share both may be off, 50 % at most: that, and
"once", of a link that was measured once, whose measurements scatter, or that was seen to carry more than they say. It is less once they
agree. With --json 50 % is left out. The state tells when it was measured; of what stood in the last request for a plan only that it was before.`

// linkList is the links that are known.
type linkList struct {
	Links []overlay.Link `json:"links"`
	Usual *events.Usual  `json:"usual,omitempty"` // what those are like that are not listed
}

// Links is `reknit links`.
func Links() *cobra.Command {
	return show(&cobra.Command{
		Use: "links [NODE...]", Short: "list the links: round trip, bandwidth, how sure both are, what is lost or cut", Long: linksHelp,
		Args: cobra.ArbitraryArgs,
	}, links)
}

func links(ctx context.Context, b *bus.Bus, _ *overlay.Names, of []string) (list linkList, err error) {
	known := overlay.New()
	sequence, err := takeRequest(ctx, b, known)
	if err != nil {
		return list, err
	}
	if err := connect.Read(ctx, b, overlay.LinkKinds, connect.Span{After: sequence}, known.Take); err != nil {
		return list, err
	}
	list.Links, list.Usual = known.Links()
	for _, node := range of {
		isEnd := func(link overlay.Link) bool { return node == link.From || node == link.To }
		if !known.Has(node) && !slices.ContainsFunc(list.Links, isEnd) {
			err := fmt.Errorf("%s: expected a node of the last request for a plan; reknit nodes lists them", node)
			return list, tell.UsageError{Err: err}
		}
	}
	if len(of) > 0 {
		list.Links = slices.DeleteFunc(list.Links,
			func(link overlay.Link) bool { return !slices.Contains(of, link.From) && !slices.Contains(of, link.To) })
	}
	return list, nil
}

func (linkList) wrong() []string { return nil }

func (l linkList) tell(w io.Writer) {
	if len(l.Links) == 0 && l.Usual == nil {
		fmt.Fprintf(w, "No link was measured: each is taken for %s/s and %s.\n", tell.Bytes(events.AssumedBytesPerSecond),
			tell.Seconds(events.AssumedRoundTripSeconds))
	}
	table := tell.Table(w)
	for i, link := range l.Links {
		if i == 0 {
			fmt.Fprintln(table, "from\tto\tround trip\tbandwidth\tgive or take\tstate")
		}
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\n", link.From, link.To, figures(link), state(link))
	}
	table.Flush()
	if l.Usual != nil {
		fmt.Fprintf(w, "The others are like the usual one: %s, %s/s.\n", tell.Seconds(l.Usual.RoundTripSeconds),
			tell.Bytes(int64(l.Usual.BandwidthBytesPerSecond)))
		for _, between := range l.Usual.Between {
			fmt.Fprintf(w, "From site %s to %s: %s, %s/s.\n", between.From, between.To, tell.Seconds(between.RoundTripSeconds),
				tell.Bytes(int64(between.BandwidthBytesPerSecond)))
		}
	}
}

func figures(l overlay.Link) string {
	if l.BandwidthBytesPerSecond == 0 {
		return "-\t-\t-"
	}
	once := ""
	if l.Uncertainty == 0 {
		once = ", once"
	}
	return fmt.Sprintf("%s\t%s/s\t%.3g %%%s", tell.Seconds(l.RoundTripSeconds), tell.Bytes(int64(l.BandwidthBytesPerSecond)), 100*l.Off(), once)
}

func state(l overlay.Link) string {
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
	return "measured before the last request for a plan"
}
