// Package connect is how a command reaches a cluster: NATS as the nats command does, the only cluster that there is, and
// what its log holds now.
package connect

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/nats-io/jsm.go/natscontext"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/spf13/pflag"

	"github.com/reknit/reknit/events"
	"github.com/reknit/reknit/services/reknit/cluster"
	"github.com/reknit/reknit/services/reknit/tell"
	"github.com/reknit/reknit/shared/bus"
)

// Unreachable says that no NATS server lets the command in.
type Unreachable struct {
	URL string
	Err error
}

func (u Unreachable) Error() string {
	start := ""
	if errors.Is(u.Err, nats.ErrNoServers) {
		start = "reknit up starts one here; "
	}
	return fmt.Sprintf("NATS at %s: %v; %s--nats, --context and --creds say where it is and who asks, "+
		"REKNIT_NATS_KIT with whose kit where it is secured", u.URL, u.Err, start)
}

// Unwrap returns why.
func (u Unreachable) Unwrap() error { return u.Err }

// Flags say which cluster a command is about.
type Flags struct{ URL, Context, Creds, Cluster string }

// Add defines the flags.
func (f *Flags) Add(flags *pflag.FlagSet) {
	f.AddServer(flags)
	flags.StringVar(&f.Cluster, "cluster", "",
		"id of the cluster (default: REKNIT_CLUSTER, the only one, or the only one where somebody lives)")
}

// AddServer defines those that say where NATS is.
func (f *Flags) AddServer(flags *pflag.FlagSet) {
	flags.StringVar(&f.URL, "nats", "", "where NATS listens (default: REKNIT_NATS_URL, NATS_URL, the context, or "+nats.DefaultURL+")")
	flags.StringVar(&f.Context, "context", "",
		"context of the nats command (default: NATS_CONTEXT, or the selected one where no URL is given)")
	flags.StringVar(&f.Creds, "creds", "", "file of credentials (default: NATS_CREDS, or the context's)")
}

const (
	dialTimeout   = 2 * time.Second
	answerTimeout = 15 * time.Second // for what a connected server is asked
)

// settings are where NATS is and how it is entered.
type settings struct {
	url, api string
	options  []nats.Option
	kit      string // folder; empty: NATS is entered as the nats command does
}

// settings reads them as the nats command does, but that the kit of an installation (REKNIT_NATS_KIT) comes before a context
// that is selected. A URL that is given takes the place of that, too, not of one that is named.
func (f Flags) settings() (settings, error) {
	name, url := cmp.Or(f.Context, os.Getenv("NATS_CONTEXT")), f.URL
	if name == "" {
		url = cmp.Or(url, os.Getenv("REKNIT_NATS_URL"), os.Getenv("NATS_URL"))
	}
	kit := ""
	if name == "" {
		kit = os.Getenv("REKNIT_NATS_KIT")
	}
	if kit != "" {
		options, api, err := bus.Enter(kit)
		if err != nil {
			return settings{}, tell.UsageError{Err: err}
		}
		return settings{url: cmp.Or(url, nats.DefaultURL), api: api, options: options, kit: kit}, nil
	}
	of, err := natscontext.New(name, name != "" || url == "",
		natscontext.WithServerURL(url), natscontext.WithCreds(cmp.Or(f.Creds, os.Getenv("NATS_CREDS"))))
	if err != nil {
		return settings{}, tell.UsageError{Err: fmt.Errorf("--context: %w", err)}
	}
	options, err := of.NATSOptions()
	if err != nil {
		return settings{}, tell.UsageError{Err: fmt.Errorf("--context: %s: %w", of.Name, err)}
	}
	api := of.JSAPIPrefix()
	if api == "" && of.JSDomain() != "" {
		api = "$JS." + of.JSDomain() + ".API"
	}
	return settings{url: of.ServerURL(), api: api, options: options}, nil
}

// Dial connects to NATS, for what is asked before a cluster is known. It fails at once with Unreachable.
func (f Flags) Dial() (*nats.Conn, jetstream.JetStream, error) {
	to, err := f.settings()
	if err != nil {
		return nil, nil, err
	}
	return to.dial()
}

func (s settings) dial() (*nats.Conn, jetstream.JetStream, error) {
	conn, err := nats.Connect(s.url, append(s.options, nats.Name("reknit"), nats.Timeout(dialTimeout),
		nats.PermissionErrOnSubscribe(true))...)
	if err != nil {
		return nil, nil, Unreachable{URL: s.url, Err: err}
	}
	js, err := jetstream.NewWithAPIPrefix(conn, cmp.Or(s.api, jetstream.DefaultAPIPrefix))
	if err != nil {
		conn.Close()
		return nil, nil, err
	}
	return conn, js, nil
}

// Open returns a bus that is connected and knows its cluster. It fails with Unreachable, or with a tell.UsageError where
// several clusters share the server and none is named, or where the one that is named is not there.
func (f Flags) Open(ctx context.Context) (*bus.Bus, error) {
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	to, err := f.settings()
	if err != nil {
		return nil, err
	}
	conn, js, err := to.dial() // says at once what the bus would try to outlast
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	name := cmp.Or(f.Cluster, os.Getenv("REKNIT_CLUSTER"))
	switch {
	case name == "":
		if name, err = to.onlyCluster(ctx, conn, js); err != nil {
			return nil, err
		}
	case !events.Token(name):
		return nil, tell.UsageError{Err: fmt.Errorf("--cluster: expected %s, got %q", cluster.Tokens, name)}
	default:
		if err := to.there(ctx, js, name); err != nil {
			return nil, err
		}
	}
	entry := bus.Config{URL: to.url, Name: "reknit", Cluster: name, Kit: to.kit, Command: true}
	if to.kit == "" {
		entry.Options, entry.API = to.options, to.api
	}
	b, err := bus.Connect(ctx, entry)
	if err != nil {
		return nil, Unreachable{URL: to.url, Err: err}
	}
	return b, nil
}
