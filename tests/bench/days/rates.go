package main

import (
	"context"
	"fmt"
	"io"
	"math"
	"os"
	"text/tabwriter"
	"time"

	"github.com/reknit/reknit/services/negotiator/protocol"
)

// rates runs one cluster at several rates of failures and tells for which share of the time training went on, beside the least that is
// promised (services/negotiator). The cost of a failure is measured at the first rate, which is to be low.
func rates(ctx context.Context, nodes int, perDay []float64, long time.Duration, seed uint64, to io.Writer) (faults []string) {
	out := tabwriter.NewWriter(to, 0, 0, 2, ' ', 0)
	fmt.Fprintln(out, "failures a node and day\tfailures\tone each\twhat one costs\ttraining went on\tpromised, no other change\tpromised\t")
	cost := 0.0
	for i, rate := range perDay {
		c := play(ctx, nodes, rate, long, seed, os.Stderr)
		seconds, failed, share := (c.steps.end - calm).Seconds(), float64(c.failed()), c.steps.share()
		if i == 0 {
			cost = (1 - share) * seconds / failed
		}
		alone, least := promised(failed/seconds, cost, 0), promised(failed/seconds, cost, protocol.MostRenewals)
		fmt.Fprintf(out, "%v\t%.0f\t%.0f s\t%.1f s\t%.2f %%\t%.2f %%\t%.2f %%\t\n", rate, failed, seconds/failed, cost, 100*share,
			100*alone, 100*least)
		if share < least {
			faults = append(faults, fmt.Sprintf("at %v failures a node and day training went on for %.2f %% of the time", rate, 100*share))
		}
		faults = append(faults, c.unsound()...)
	}
	out.Flush()
	return faults
}

// promised returns the share of the time that training goes on at least, at so many failures a second of which one costs so
// many seconds alone, and where other changes have the negotiation after it begin anew so often.
func promised(rate, cost float64, renewals int) float64 {
	return math.Exp(-rate * cost * float64(1+renewals))
}
