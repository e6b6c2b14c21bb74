package doctor

import (
	"crypto/tls"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/reknit/reknit/events"
	"github.com/reknit/reknit/services/reknit/provision"
	"github.com/reknit/reknit/services/reknit/tell"
	"github.com/reknit/reknit/shared/bus"
)

// provisioned returns the folder of an installation for the cluster c.
func provisioned(t *testing.T) string {
	t.Helper()
	folder := t.TempDir()
	if err := provision.Security(provision.Options{Dir: folder, Cluster: "c"}); err != nil {
		t.Fatal(err)
	}
	return folder
}

// secured starts a server that speaks TLS with an installation's certificate, and lets nobody in who has none of it.
func secured(t *testing.T, installation string) (url string) {
	t.Helper()
	at := func(file string) string { return filepath.Join(installation, "server", file) }
	certificate, err := tls.LoadX509KeyPair(at(bus.CertificateFile), at(bus.KeyFile))
	if err != nil {
		t.Fatal(err)
	}
	started, err := server.NewServer(&server.Options{
		Host: "127.0.0.1", Port: server.RANDOM_PORT, NoSigs: true, NoLog: true, TLS: true, TLSHandshakeFirst: true, TLSTimeout: 5, MaxControlLine: 8192,
		TLSConfig: &tls.Config{Certificates: []tls.Certificate{certificate}, MinVersion: tls.VersionTLS13, ClientAuth: tls.RequireAnyClientCert},
	})
	if err != nil {
		t.Fatal(err)
	}
	started.Start()
	t.Cleanup(started.Shutdown)
	return started.ClientURL()
}

// A first user was told to start a server in each of these cases.
func TestWhoIsNotLetInIsToldWhyAndNotToStartAServer(t *testing.T) {
	one, other := provisioned(t), provisioned(t)
	url := secured(t, one)
	kit := func(installation string) string { return filepath.Join(installation, "services", "user") }
	broken := filepath.Join(t.TempDir(), "kit")
	if err := os.CopyFS(broken, os.DirFS(kit(one))); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(filepath.Join(broken, bus.KeyFile)); err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct{ kit, cluster, expected string }{
		"no kit":                     {"", "", "NATS wrong: the server at 127.0.0.1:"},
		"a kit of another":           {kit(other), "", "is of another installation than this kit"},
		"a kit without its key":      {broken, "", "kit wrong: its certificate and key cannot be used: open "},
		"a kit, and another cluster": {kit(one), "d", "kit wrong: it is for the cluster c, and d is named"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv("REKNIT_NATS_KIT", test.kit)
			t.Setenv("REKNIT_CLUSTER", test.cluster)
			findings, err := examinedIn(t, url, "")
			said := strings.Join(findings, "\n")
			if !strings.Contains(said, test.expected) || len(findings) != 1 || !errors.As(err, &tell.NotWell{}) {
				t.Errorf("%v: expected %q alone in\n%s", err, test.expected, said)
			}
			if strings.Contains(said, "start one") {
				t.Errorf("it says\n%s", said)
			}
		})
	}
}

// An operator's laptop need not be reached by anybody.
func TestAMachineThatIsNoNodeNeedNotBeReached(t *testing.T) {
	for variable, expected := range map[string]string{"": "warning", "REKNIT_AGENT_ADVERTISE": "wrong"} {
		t.Run(expected, func(t *testing.T) {
			d := doctor{}
			d.node.Listen = "127.0.0.1:0"
			listener, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			listener.Close()
			if variable != "" {
				t.Setenv(variable, listener.Addr().String())
			}
			if state := stateOf(d.unreached("n1", "127.0.0.1:7000", "refused", d.isNodeHere(true))); state != expected {
				t.Errorf("with %q it is %s, expected %s", variable, state, expected)
			}
		})
	}
}

func stateOf(findings []Finding) string { return findings[0].State }

// Peers were ok: the kernel takes connections for a process that is frozen.
func TestAFrozenMemberIsNamed(t *testing.T) {
	member := events.Member{Node: "n2"}
	refused := errors.New("refused")
	for _, of := range []struct {
		life    life
		dialled error
		says    string
	}{
		{mute, nil, "n2 takes connections, and gave no sign of life at NATS in 3s"},
		{mute, refused, "n2 cannot be reached: refused"},
		{gone, nil, "n2 is not there"},
		{lives, nil, ""},
	} {
		findings := peer(member, of.dialled, of.life)
		if of.says == "" && len(findings) == 0 {
			continue
		}
		if len(findings) != 1 || findings[0].State != warning || !strings.HasPrefix(findings[0].Says, of.says) {
			t.Errorf("%+v: found %+v", of, findings)
		}
	}
}
