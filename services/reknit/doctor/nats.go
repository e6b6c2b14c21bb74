package doctor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/reknit/reknit/events"
	"github.com/reknit/reknit/services/reknit/connect"
	"github.com/reknit/reknit/services/reknit/inventory"
	"github.com/reknit/reknit/services/reknit/tell"
	"github.com/reknit/reknit/shared/bus"
)

// Shares of a bound from which on something is said. Services are no longer ready at the second.
const (
	almostFull = 0.80
	full       = 0.95
)

// mostSkew is how far clocks may be apart. Nothing is decided by two clocks, but who reads logs of several machines puts
// them together by their times, and a token that has not begun or has ended is refused.
const mostSkew = time.Second

func (d *doctor) nats(ctx context.Context) []Finding {
	if d.unfit {
		return found(unseen, "", "the kit is to be mended first")
	}
	conn, js, err := d.live.Dial()
	unreachable := connect.Unreachable{}
	switch {
	case errors.Is(err, nats.ErrAuthorization), errors.Is(err, nats.ErrAuthExpired), errors.Is(err, nats.ErrAuthRevoked):
		return found(wrong, "give it keys: --creds, NATS_CREDS, or a context of the nats command", "%v", err)
	case errors.As(err, &unreachable):
		return d.refusedBy(ctx, unreachable.URL, unreachable.Err)
	case err != nil:
		return found(wrong, "see reknit doctor --help", "%v", err)
	}
	d.conn, d.api = conn, js
	trip, err := conn.RTT()
	if err != nil {
		return found(wrong, "see the log of the server", "%s was reached, and does not answer: %v", conn.ConnectedUrlRedacted(), err)
	}
	says := fmt.Sprintf("%s answers in %s, version %s", conn.ConnectedUrlRedacted(), tell.Seconds(trip.Seconds()),
		conn.ConnectedServerVersion())
	if !serverIsTested(conn.ConnectedServerVersion()) {
		return found(warning, "run "+server.VERSION+" or a later one", "%s; Reknit is tested with %s", says, server.VERSION)
	}
	return found(fine, "", "%s", says)
}

// serverIsTested reports whether a version is at least, up to its last number, the one that Reknit is tested with.
func serverIsTested(version string) bool {
	var major, minor, testedMajor, testedMinor int
	_, err := fmt.Sscanf(version, "%d.%d", &major, &minor)
	_, tested := fmt.Sscanf(server.VERSION, "%d.%d", &testedMajor, &testedMinor)
	return err == nil && tested == nil && (major > testedMajor || major == testedMajor && minor >= testedMinor)
}

func (d *doctor) jetStream(ctx context.Context) []Finding {
	lane := events.Lane(cmp.Or(d.live.Cluster, d.node.Cluster), events.EventStream.Name)
	if d.kit.API != "" { // who has such a kit may not ask how much there is
		if _, err := d.api.Stream(ctx, lane); !isSilent(err) {
			d.js = d.api
			return found(fine, "", "it answers")
		}
		return found(wrong, "see whether the servers have a leader: nats server report jetstream, or their logs",
			"nobody answers on its subjects")
	}
	account, err := d.api.AccountInfo(ctx)
	if isSilent(err) {
		if _, known := d.api.Stream(ctx, lane); known == nil { // a node need not know more
			d.js = d.api
			return found(fine, "", "it answers, though not how much it holds")
		}
	}
	switch {
	case errors.Is(err, jetstream.ErrJetStreamNotEnabled), errors.Is(err, jetstream.ErrJetStreamNotEnabledForAccount):
		return found(wrong, "switch it on: jetstream {store_dir: …} in the server's configuration, and for this account", "it is off")
	case isSilent(err):
		return found(wrong, "see whether the server has a leader, this user may ask $JS.API.>, and a context names the domain of JetStream",
			"nobody answers on its subjects")
	case err != nil:
		return found(wrong, "see the log of the server", "%v", err)
	}
	d.js = d.api
	held, bound := float64(account.Store), float64(account.Limits.MaxStore)
	says := fmt.Sprintf("it holds %s", tell.Bytes(int64(account.Store)))
	switch {
	case bound <= 0:
		return found(fine, "", "%s", says)
	case held > almostFull*bound:
		return found(warning, "raise max_file_store, or the account's limit", "%s of the %s that it may", says, tell.Bytes(int64(bound)))
	}
	return found(fine, "", "%s of the %s that it may", says, tell.Bytes(int64(bound)))
}

// isSilent reports that nobody answered: a user is not told that it may not ask.
func isSilent(err error) bool {
	return errors.Is(err, context.DeadlineExceeded) || errors.Is(err, nats.ErrTimeout)
}

// streams compares each stream, and the stream under each bucket, with what services make where there is none.
func (d *doctor) streams(ctx context.Context) (all []Finding) {
	expected := []expectation{
		{name: d.bus.Lane(events.EventStream.Name), stream: &events.EventStream},
		{name: d.bus.Lane(events.PlanStream.Name), stream: &events.PlanStream}, {name: "KV_" + d.bus.Lane(events.SnapshotBucket)},
	}
	for _, store := range events.ObjectStores {
		expected = append(expected, expectation{name: "OBJ_" + d.bus.Lane(store.Bucket), drops: store.DropsOldest})
	}
	for _, one := range expected {
		all = append(all, one.compare(ctx, d.bus)...)
	}
	return all
}

// expectation is what a stream must be.
type expectation struct {
	name   string
	stream *events.Stream // nil: of a bucket
	drops  bool           // what is oldest, once it is full
}

func (e expectation) compare(ctx context.Context, b *bus.Bus) (all []Finding) {
	stream, err := b.JetStream().Stream(ctx, e.name)
	switch {
	case errors.Is(err, jetstream.ErrStreamNotFound):
		return found(wrong, "start a service: it makes those that are missing", "%s is missing", e.name)
	case err != nil:
		return found(wrong, "see the log of the server, and whether this user may ask for it", "%s: %v", e.name, err)
	}
	info := stream.CachedInfo()
	say := func(state, do, format string, arguments ...any) {
		all = append(all, found(state, do, e.name+" "+format, arguments...)...)
	}
	if e.stream != nil {
		e.settings(b, info.Config, say)
	}
	switch drops := info.Config.Discard == jetstream.DiscardOld; {
	case e.drops && !drops:
		say(warning, "nats stream edit "+e.name+" --discard old", "refuses what comes once it is full: a change then waits for room")
	case !e.drops && drops:
		say(wrong, "nats stream edit "+e.name+" --discard new", "drops what it acknowledged once it is full")
	}
	held, bound := float64(info.State.Bytes), float64(info.Config.MaxBytes)
	switch {
	case info.Config.Discard == jetstream.DiscardOld: // it is full most of the time, and makes room
	case bound > 0 && held > full*bound:
		say(wrong, "nats stream edit "+e.name+" --max-bytes …", "is full: %.0f%% of %s", 100*held/bound, tell.Bytes(info.Config.MaxBytes))
	case bound > 0 && held > almostFull*bound:
		say(warning, "nats stream edit "+e.name+" --max-bytes …",
			"is almost full: %.0f%% of %s", 100*held/bound, tell.Bytes(info.Config.MaxBytes))
	}
	if info.Cluster != nil && info.Cluster.Name != "" && info.Config.Replicas < 3 {
		say(warning, "nats stream edit "+e.name+" --replicas 3", "is kept %s: it is gone with a server",
			tell.Count(info.Config.Replicas, "time", "times"))
	}
	if info.Cluster != nil {
		for _, follower := range info.Cluster.Replicas {
			if follower.Offline || !follower.Current {
				say(warning, "start "+follower.Name+", or see its log: till it has all, another loss of a server stops everything",
					"is not whole on %s", follower.Name)
			}
		}
	}
	if len(all) == 0 {
		say(fine, "", "is as it must be, and holds %s", tell.Bytes(int64(info.State.Bytes)))
	}
	return all
}

// settings compares what makes of a stream a log, or a list of plans that never change.
func (e expectation) settings(b *bus.Bus, is jetstream.StreamConfig, say func(state, do, format string, arguments ...any)) {
	anew := "keep what it holds (deploy/README.md), and make it anew: a service does, where it is missing"
	if expected := e.stream.Subjects(b.Cluster()); !slices.Equal(is.Subjects, expected) {
		say(wrong, anew, "hears %v, expected %v", is.Subjects, expected)
	}
	if e.stream.WriteOnce && (is.MaxMsgsPerSubject != 1 || !is.DiscardNewPerSubject) {
		say(wrong, anew, "takes a second plan for a generation")
	}
	switch makesRoom := b.Secured() && !e.stream.WriteOnce; {
	case !is.DenyDelete || !is.DenyPurge && !makesRoom && !e.stream.WriteOnce: // old plans are purged
		say(warning, anew, "lets messages be deleted or purged")
	case is.DenyPurge && makesRoom:
		say(warning, anew, "lets the monitor make no room, should one institution fill it")
	}
	if newest := int64(e.stream.Newest); newest > 0 && is.MaxMsgsPerSubject != newest {
		say(warning, fmt.Sprintf("nats stream edit %s --max-msgs-per-subject %d", e.name, newest),
			"keeps another number of messages of a subject than %d: it fills up, or forgets", newest)
	}
	if is.Storage != jetstream.FileStorage {
		say(warning, anew, "is in memory: it is gone with its server")
	}
	if is.MaxAge > 0 && is.MaxAge < e.stream.MaxAge || is.MaxAge > 0 && e.stream.MaxAge == 0 {
		say(warning, "nats stream edit "+e.name+" --max-age …", "drops what is older than %v, sooner than expected", is.MaxAge)
	}
	if is.Duplicates < e.stream.Dedupe {
		say(warning, "nats stream edit "+e.name+" --dupe-window "+e.stream.Dedupe.String(),
			"remembers ids for %v, expected %v: a service that is away for longer may say things twice", is.Duplicates, e.stream.Dedupe)
	}
}

// clock compares this machine's with the server's, which dates every event. It is known to half of a round trip.
func (d *doctor) clock(ctx context.Context) []Finding {
	asked := time.Now()
	stream, err := d.js.Stream(ctx, d.bus.Lane(events.EventStream.Name))
	trip := time.Since(asked)
	if err != nil {
		return found(unseen, "", "%v", err)
	}
	skew := stream.CachedInfo().TimeStamp.Sub(asked.Add(trip / 2))
	says := fmt.Sprintf("the server's is %s %s this one, give or take %s", tell.Seconds(skew.Abs().Seconds()),
		map[bool]string{true: "behind", false: "before"}[skew < 0], tell.Seconds((trip / 2).Seconds()))
	if skew.Abs() > mostSkew+trip/2 {
		return found(warning, "set both by NTP", "%s", says)
	}
	return found(fine, "", "%s", says)
}

func (d *doctor) cluster(ctx context.Context) []Finding {
	b, err := d.live.Open(ctx)
	if err != nil {
		return found(wrong, "start services (reknit up), or name the cluster by --cluster or REKNIT_CLUSTER", "%v", err)
	}
	d.bus = b
	return found(fine, "", "%s", b.Cluster())
}

// permissions tries what a node hears. A node's own messages cannot be tried without being heard by others.
func (d *doctor) permissions(ctx context.Context) (all []Finding) {
	cluster, node := d.bus.Cluster(), cmp.Or(d.node.Node, "reknit-doctor")
	subjects := []string{
		events.PlanSubject(cluster, "*"), events.EventSubject(cluster, events.NegotiationOpened, "*"),
		events.EventSubject(cluster, events.MembershipRefused, node), events.ProbeSubject(cluster, node),
	}
	if d.isUser() {
		subjects = []string{events.PulseSubject(cluster, "*")}
	}
	for _, subject := range subjects {
		if err := d.mayHear(subject); err != nil {
			all = append(all, found(wrong, "give this user the permission to subscribe to it", "%s: %v", subject, err)...)
		}
	}
	err := connect.Read(ctx, d.bus, []events.Kind{events.LeaseTaken}, connect.Span{}, func(events.Event) {})
	if err != nil {
		all = append(all, found(wrong, "give this user the permission to read the stream by consumers", "the log cannot be read: %v", err)...)
	}
	if len(all) == 0 && d.isUser() {
		return found(fine, "", "this user hears heartbeats, and reads the log")
	}
	if len(all) == 0 {
		return found(fine, "", "this user hears what a node must, and reads the log")
	}
	return all
}

func (d *doctor) mayHear(subject string) error {
	subscription, err := d.conn.SubscribeSync(subject)
	if err != nil {
		return err
	}
	defer subscription.Unsubscribe()
	if err := d.conn.Flush(); err != nil { // a refusal is answered before
		return err
	}
	if _, err := subscription.NextMsg(time.Millisecond); errors.Is(err, nats.ErrPermissionViolation) {
		return err
	}
	return nil
}

func (d *doctor) services(ctx context.Context) (all []Finding) {
	if d.isNode() {
		return found(unseen, "", "services do not answer nodes; ask with the kit of a user (services/user)")
	}
	services, err := inventory.Services(ctx, d.bus)
	if err != nil {
		return found(wrong, "see whether this user may ask on reknit.lease.>", "%v", err)
	}
	for _, service := range services {
		if !service.Works {
			all = append(all, found(wrong, "start one, or see its log", "no %s answers", service.Service)...)
		}
	}
	if len(all) == 0 {
		return found(fine, "", "all four answer, of build %s", builds(services))
	}
	return all
}
