package main

import (
	"strings"
	"testing"

	"github.com/reknit/reknit/shared/service"
)

func TestAVariableThatNoCommandReadsIsNamed(t *testing.T) {
	environment := []string{
		"HOME=/root", "REKNIT_CONSENT_ALOW=x", "REKNIT_CONSENT_ALLOW=x", "REKNIT_TRAINER_STEPS=1", "REKNIT_AGENT=/s",
		"REKNIT_NATS_PORT_4222_TCP=tcp://10.0.0.1:4222",
	}
	warns := "reknit: REKNIT_CONSENT_ALOW is no setting, and has no effect: did you mean REKNIT_CONSENT_ALLOW?\n"
	for command, want := range map[string]string{"status": warns, "monitor": warns, "agent": "" /* it says so itself */} {
		var said strings.Builder
		if warnOfStrangers(command, environment, &said); said.String() != want {
			t.Errorf("%s says %q", command, said.String())
		}
	}
}

// A service names what is almost a setting of its own, and one environment may hold the settings of all.
func TestNoSettingIsTakenForAnotherThatIsSpeltWrong(t *testing.T) {
	var all []string
	for _, config := range configs {
		for _, variable := range service.Variables(config) {
			all = append(all, variable.Name+"=x")
		}
	}
	for _, config := range configs {
		if names := service.Misspelt(config, append(all, others...)); len(names) > 0 {
			t.Errorf("%T takes %v for misspelt", config, names)
		}
	}
}
