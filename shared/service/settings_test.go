package service

import (
	"errors"
	"strings"
	"testing"
	"time"
)

// measured has a setting of each kind.
type measured struct {
	Common
	Count  int           `env:"REKNIT_COUNT" envDefault:"2" unit:"copies" is:"min=1,max=9"`
	Bytes  int64         `env:"REKNIT_BYTES" envDefault:"7" unit:"bytes"`
	Steps  uint64        `env:"REKNIT_STEPS" envDefault:"7" unit:"steps" is:"min=1"`
	Share  float64       `env:"REKNIT_SHARE" envDefault:"0.5" unit:"relative change" is:"over=0"`
	Wait   time.Duration `env:"REKNIT_WAIT" envDefault:"1s" unit:"duration" is:"over=0,max=3s"`
	Never  time.Duration `env:"REKNIT_NEVER" envDefault:"0s" unit:"duration, 0 for never"`
	Secret string        `env:"REKNIT_SECRET" unit:"characters" is:"min=4"`
	Nodes  []string      `env:"REKNIT_NODES" unit:"ids, with commas"`
	Sites  string        `env:"REKNIT_SITES" unit:"ids, with commas"`
}

func (m *measured) Validate() error {
	if m.Count == 3 {
		return errors.New("REKNIT_COUNT: expected another one than 3")
	}
	return nil
}

func TestASettingOutOfItsRangeOrFormIsNamedWithWhatWasExpected(t *testing.T) {
	for given, said := range map[string]string{
		"REKNIT_COUNT=0":                    `REKNIT_COUNT: expected copies, 1 to 9, such as 2, got "0"`,
		"REKNIT_COUNT=10":                   `REKNIT_COUNT: expected copies, 1 to 9, such as 2, got "10"`,
		"REKNIT_COUNT=3":                    `REKNIT_COUNT: expected another one than 3`,
		"REKNIT_BYTES=-5":                   `REKNIT_BYTES: expected bytes, 0 to 9007199254740991, such as 7, got "-5"`,
		"REKNIT_BYTES=99999999999999999999": `REKNIT_BYTES: expected bytes, 0 to 9007199254740991, such as 7, got "99999999999999999999"`,
		"REKNIT_STEPS=0":                    `REKNIT_STEPS: expected steps, 1 to 9007199254740991, such as 7, got "0"`,
		"REKNIT_STEPS=-1":                   `REKNIT_STEPS: expected steps, 1 to 9007199254740991, such as 7, got "-1"`,
		"REKNIT_SHARE=inf":                  `REKNIT_SHARE: expected relative change, more than 0, such as 0.5, got "inf"`,
		"REKNIT_SHARE=NaN":                  `REKNIT_SHARE: expected relative change, more than 0, such as 0.5, got "NaN"`,
		"REKNIT_SHARE=0":                    `REKNIT_SHARE: expected relative change, more than 0, such as 0.5, got "0"`,
		"REKNIT_WAIT=0s":                    `REKNIT_WAIT: expected duration, more than 0, at most 3s, such as 1s, got "0s"`,
		"REKNIT_WAIT=3001ms":                `REKNIT_WAIT: expected duration, more than 0, at most 3s, such as 1s, got "3001ms"`,
		"REKNIT_NEVER=-1s":                  `REKNIT_NEVER: expected duration, 0 for never, at least 0, such as 0s, got "-1s"`,
		"REKNIT_SECRET=key":                 `REKNIT_SECRET: expected characters, at least 4, got "3"`,
		"REKNIT_NODES=n1, n2":               `REKNIT_NODES: expected ids with commas between them, each 1 to 64 characters`,
		"REKNIT_SITES=a,b c":                `REKNIT_SITES: expected ids with commas between them, each 1 to 64 characters`,
		"REKNIT_CLUSTER=a b":                `REKNIT_CLUSTER: expected 1 to 64 characters of A-Z a-z 0-9 - _, got "a b"`,
		"REKNIT_HTTP_ADDRESS=foo":           `REKNIT_HTTP_ADDRESS: expected host:port, with a port of 0 to 65535, got "foo"`,
		"REKNIT_HTTP_ADDRESS=n1:70000":      `REKNIT_HTTP_ADDRESS: expected host:port, with a port of 0 to 65535, got "n1:70000"`,
		"REKNIT_NATS_URL=::":                `REKNIT_NATS_URL: expected the URL of a NATS server, or several with commas`,
		"REKNIT_NATS_URL=nats://a,http://b": `REKNIT_NATS_URL: expected the URL of a NATS server, or several with commas`,
		"REKNIT_NATS_URL=nats://u:p,w@a:x":  `REKNIT_NATS_URL: expected the URL of a NATS server, or several with commas, such as nats://127.0.0.1:4222, got "a:x"`,
		"REKNIT_NATS_URL=nats://a:x":        `REKNIT_NATS_URL: expected the URL of a NATS server, or several with commas`,
	} {
		name, value, _ := strings.Cut(given, "=")
		err := Read(new(measured), map[string]string{name: value})
		if !errors.As(err, &Misconfigured{}) || !strings.HasPrefix(err.Error(), said) {
			t.Errorf("%s: got %v, want %s", given, err, said)
		}
	}
}

func TestASettingInItsRangeIsTaken(t *testing.T) {
	for _, given := range []string{
		"REKNIT_COUNT=9", "REKNIT_WAIT=3s", "REKNIT_SHARE=1e9", "REKNIT_SECRET=long enough", "REKNIT_NODES=n1,n2", "REKNIT_SITES=a, b",
		"REKNIT_HTTP_ADDRESS=:8080", "REKNIT_HTTP_ADDRESS=[::1]:0", "REKNIT_NATS_URL=localhost", "REKNIT_NATS_URL=a:4222, tls://b:4222",
		"REKNIT_NATS_URL=nats://user:word@[::1]:4222", "REKNIT_LOG_LEVEL=DEBUG", "REKNIT_BYTES=9007199254740991",
	} {
		name, value, _ := strings.Cut(given, "=")
		if err := Read(new(measured), map[string]string{name: value}); err != nil {
			t.Errorf("%s: %v", given, err)
		}
	}
}

func TestEachWrongSettingIsNamedAtOnce(t *testing.T) {
	err := Read(new(measured), map[string]string{"REKNIT_COUNT": "many", "REKNIT_WAIT": "-1s", "REKNIT_SHARE": "1"})
	if err == nil || !strings.Contains(err.Error(), "REKNIT_COUNT") || !strings.Contains(err.Error(), "REKNIT_WAIT") {
		t.Errorf("got %v", err)
	}
}
