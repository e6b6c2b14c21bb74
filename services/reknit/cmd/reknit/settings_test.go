package main

import (
	"strings"
	"testing"
)

func TestAVariableThatNoCommandReadsIsNamed(t *testing.T) {
	var said strings.Builder
	warnOfStrangers([]string{
		"HOME=/root", "REKNIT_CONSENT_ALOW=x", "REKNIT_CONSENT_ALLOW=x", "REKNIT_TRAINER_STEPS=1", "REKNIT_AGENT=/s",
		"REKNIT_NATS_PORT_4222_TCP=tcp://10.0.0.1:4222",
	}, &said)
	if lines := strings.Count(said.String(), "\n"); lines != 1 || !strings.Contains(said.String(), "REKNIT_CONSENT_ALOW is no setting") {
		t.Errorf("it says %q", said.String())
	}
}
