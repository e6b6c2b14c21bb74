package shards

import (
	"context"
	"crypto/subtle"
	"log/slog"
	"maps"
	"net"
	"regexp"
	"slices"
	"sync"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/reknit/reknit/services/agent/mtls"
)

// inboxName is what a reader names its connection: the subject below which its answers come. No two readers share one, and nobody
// guesses another's: whoever knew it could have the server answer there.
var inboxName = regexp.MustCompile(`^_INBOX\.[A-Za-z0-9]{22,64}$`)

// admission lets connections in: the node itself by its secret, and everybody else as a reader.
type admission struct {
	server   *server.Server
	identity *mtls.Identity
	bucket   string
	secret   string

	mutex sync.Mutex
	open  map[string][]connected // of each node, the oldest first
}

// connected is a connection, and ends the watch over whether its node is still in.
type connected struct {
	id      uint64
	release func()
}

// Check registers a connection. A reader may subscribe below the inbox that its connection is named, and nowhere else: an answer
// comes to who asked for it alone, and nobody hears which tokens another's answers will have.
func (a *admission) Check(connection server.ClientAuthentication) bool {
	said := connection.GetOpts()
	if said.Username == owner && subtle.ConstantTimeCompare([]byte(said.Password), []byte(a.secret)) == 1 {
		return a.register(connection, accountOfOwner, &server.User{Username: owner})
	}
	id := connection.GetID()
	open, release := context.WithCancel(context.Background())
	a.bound(connection, connected{id, release}) // those that wait to be let in are among the node's
	leave, err := a.identity.Hold(open, nodeOf(connection), func() { a.end(id) })
	if err != nil {
		release()
		slog.Warn("shard store: connection refused", "bucket", a.bucket, "from", connection.RemoteAddress(), "error", err)
		return false
	}
	context.AfterFunc(open, leave)
	return a.register(connection, accountOfReaders, &server.User{Username: reader, Permissions: a.readers(said.Name)})
}

// end ends a connection. Its last writes may wait; one that is gone by then is none.
func (a *admission) end(id uint64) { go func() { _ = a.server.DisconnectClientByID(id) }() }

// bound ends the oldest connection of a node that has too many: what one left behind that it cannot close does not keep it out.
// O(connections).
func (a *admission) bound(newest server.ClientAuthentication, its connected) {
	node, most := nodeOf(newest), hostConnections
	if newest.GetTLSConnectionState() != nil {
		most = nodeConnections
	}
	a.mutex.Lock()
	defer a.mutex.Unlock()
	for other, all := range a.open {
		a.open[other] = slices.DeleteFunc(all, a.isGone)
	}
	maps.DeleteFunc(a.open, func(_ string, all []connected) bool { return len(all) == 0 })
	all := append(a.open[node], its)
	if len(all) > most {
		all[0].release()
		a.end(all[0].id)
		all = all[1:]
	}
	a.open[node] = all
}

// isGone reports whether a connection has ended. Nobody is to watch over it then.
func (a *admission) isGone(one connected) bool {
	if a.server.GetClient(one.id) != nil {
		return false
	}
	one.release()
	return true
}

func (a *admission) register(connection server.ClientAuthentication, account string, user *server.User) bool {
	found, err := a.server.LookupAccount(account)
	if err != nil {
		return false
	}
	user.Account = found
	connection.RegisterUser(user)
	return true
}

// readers are the permissions of a connection of that name.
func (a *admission) readers(name string) *server.Permissions {
	hears := &server.SubjectPermission{Deny: []string{">"}}
	if inboxName.MatchString(name) {
		hears = &server.SubjectPermission{Allow: []string{name + ".>"}}
	}
	says := []string{"$JS.API.DIRECT.GET." + streamName(a.bucket), wantSubject(a.bucket), haveSubject(a.bucket), warmSubject(a.bucket)}
	return &server.Permissions{Publish: &server.SubjectPermission{Allow: says}, Subscribe: hears}
}

// nodeOf is whose connection it is: the name in its certificate, or the host that it comes from where nobody shows one.
func nodeOf(connection server.ClientAuthentication) string {
	if secured := connection.GetTLSConnectionState(); secured != nil && len(secured.PeerCertificates) > 0 {
		return secured.PeerCertificates[0].Subject.CommonName
	}
	if address, isTCP := connection.RemoteAddress().(*net.TCPAddr); isTCP {
		return address.IP.String()
	}
	return ""
}
