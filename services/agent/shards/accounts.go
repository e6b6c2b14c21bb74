package shards

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"

	"github.com/nats-io/nats-server/v2/server"
)

// The users of a store's server: the node itself, by its secret, and everybody else.
const (
	owner  = "owner"
	reader = "reader"
)

// The accounts of a store's server.
const (
	accountOfOwner   = "GIVES"
	accountOfReaders = "READS"
)

// Bounds of those who read.
const (
	maxRequest       = 512  // bytes: a want is a digest of 71, a request for chunks names their subject
	maxSubscriptions = 64   // of one connection: a transfer has two
	maxConnections   = 4096 // of all
	nodeConnections  = 8    // of one node, by its certificate: a transfer has one
	hostConnections  = 64   // of one host, where nobody shows a certificate
)

// accounts of a store's server. Readers have one of their own, in which no stream listens and no JetStream is: what the
// bucket answers comes there, whatever subject they name for it, and never into the bucket. They reach nothing but four
// services, of which three learn whose request it is. Parts that a giver has its bucket send unasked come from below "pushed".
//
// An answer is one message. The server forgets who asked once it has passed that on; of those who warm their connections, at
// the empty message that ends it.
const accounts = `
accounts {
  GIVES {
    jetstream: { max_mem: %[2]d, max_file: 0, max_streams: 1, max_consumers: 64 }
    exports: [
      { service: "$JS.API.DIRECT.GET.OBJ_%[1]s", response_type: "singleton", accounts: [ READS ] }
      { service: "shards.want.%[1]s", response_type: "singleton", accounts: [ READS ] }
      { service: "shards.have.%[1]s", response_type: "singleton", accounts: [ READS ] }
      { service: "shards.warm.%[1]s", response_type: "stream", accounts: [ READS ] }
      { stream: "pushed.*.*.*", accounts: [ READS ] }
    ]
  }
  READS {
    limits: { max_payload: %[3]d, max_subs: %[4]d }
    imports: [
      { service: { account: GIVES, subject: "$JS.API.DIRECT.GET.OBJ_%[1]s" }, share: true }
      { service: { account: GIVES, subject: "shards.want.%[1]s" }, share: true }
      { service: { account: GIVES, subject: "shards.have.%[1]s" }, share: true }
      { service: { account: GIVES, subject: "shards.warm.%[1]s" } }
      { stream: { account: GIVES, subject: "pushed.*.*.*" }, to: "_INBOX.$1.$2.$3" }
    ]
  }
}
`

func options(config StoreConfig, dir string) (*server.Options, error) {
	port := config.Port
	if port == 0 {
		port = server.RANDOM_PORT
	}
	asks := config.Identity.Server()
	settings := &server.Options{
		ServerName: config.Bucket, Host: config.Host, Port: port,
		JetStream: true, StoreDir: dir, JetStreamMaxMemory: bucketBytes, JetStreamMaxStore: bucketBytes,
		MaxPayload: maxPayload, MaxPending: maxPending, MaxConn: maxConnections, StreamMaxBufferedSize: streamBuffer,
		TLSConfig: asks, TLSVerify: asks != nil, TLSHandshakeFirst: asks != nil, TLSTimeout: tlsTimeout.Seconds(),
		WriteDeadline: writeDeadline, NoSigs: true, NoLog: true, DisableJetStreamBanner: true,
	}
	return settings, settings.ProcessConfigString(fmt.Sprintf(accounts, config.Bucket, int64(bucketBytes), maxRequest, maxSubscriptions))
}

// ContextFile is what NATS's own clients take as a context, in the store's directory: who may read it looks into the bucket as
// the node itself does, with `nats --context FILE object ls`, say.
const ContextFile = "context.json"

func (s *Store) writeContext(secret string) error {
	text, err := json.Marshal(map[string]string{
		"description": "the bucket " + s.bucket + " of this node", "url": s.URL(), "user": owner, "password": secret,
	})
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(s.dir, ContextFile), text, 0o600)
}
