package events

import (
	"fmt"
	"strings"
	"testing"
)

// Faults 10 and 22: one valid consent filled the negotiator's memory, and told of the links of others.
func TestAConsentIsBoundedAndSpeaksForItsNodeOnly(t *testing.T) {
	many := make([]Measurement, 4097)
	for i := range many {
		many[i] = Measurement{From: "n1", To: fmt.Sprint("n", i+2)}
	}
	digest := Digest(nil)
	for field, consent := range map[string]Consent{
		`field "holdings[0].units": expected 0 <= first < end <= 4096`: {Holdings: []Holding{{Units: Range{End: 1 << 40}, Steps: []uint64{1}}}},
		`field "holdings": expected at most 4096`:                      {Holdings: make([]Holding, MostUnits+1)},
		`field "claims[0].unit": expected 0 to 4095`:                   {Claims: []Claim{{Unit: MostUnits, Digest: digest}}},
		`field "claims": expected at most 8192`:                        {Claims: make([]Claim, 2*MostUnits+1)},
		`field "measurements": expected at most 4096`:                  {Measurements: many},
		`field "refuses[0]": expected`:                                 {Refuses: []string{"n 2"}},
		`field "refuses": expected at most 4096`:                       {Refuses: make([]string, 4097)},
		`field "refuses": expected none where`:                         {Accepted: true, Refuses: []string{"n2"}},
		`field "measurements[0].from": expected the node that consents`: {
			Measurements: []Measurement{{From: "n2", To: "n3"}}},
	} {
		consent.Negotiation, consent.Node, consent.Incarnation = "g2-x", "n1", "i"
		if err := consent.Validate(); err == nil || !strings.HasPrefix(err.Error(), field) {
			t.Errorf("error %v, expected %s", err, field)
		}
	}
}
