package provision

import (
	"fmt"
	"time"

	"github.com/nats-io/jwt/v2"
	"github.com/nats-io/nkeys"

	"github.com/reknit/reknit/services/reknit/permission"
)

// answerTime is how long after a request its answer may be published: a neighbour fetches a part of a snapshot before it
// answers that it keeps it.
const answerTime = 10 * time.Minute

// mostMessage is what a node may say at once. The server takes 8 MB, for memories of services; the most that a node has to say is
// a value for the trainers of its generation, or a frame for a node that it does not reach.
const mostMessage = 1 << 20

// mostConnections is how many connections nodes and users may have. The server takes 16,384 (nats.conf.tmpl): the others are for services,
// however many one kit has.
const mostConnections = 16000

// mostSubscriptions is how many a connection may have: an agent needs under twenty. The server of a site has one connection, for those of
// all its nodes. A bound in nats.conf would be that of both.
const (
	mostSubscriptions       = 256
	mostSubscriptionsOfSite = 64 << 10
)

func rightsOf(rights permission.Rights) jwt.Permissions {
	may := func(subjects, deny []string) jwt.Permission {
		if len(subjects) == 0 {
			return jwt.Permission{Deny: []string{">"}} // to allow nothing in particular is to allow all
		}
		return jwt.Permission{Allow: subjects, Deny: deny}
	}
	return jwt.Permissions{
		Pub: may(rights.Publish, rights.Deny), Sub: may(rights.Subscribe, nil),
		Resp: &jwt.ResponsePermission{MaxMsgs: 1, Expires: answerTime},
	}
}

// subject stands for the public key of who connects, in what an institution's signing key allows. A name would not do: who
// is named "*" speaks for everybody.
const subject = "{{subject()}}"

// inbox is what the answers to somebody are below.
func inbox(key string) string { return "_INBOX." + key }

// operatorToken returns the token of the operator, who signs itself.
func (i *installation) operatorToken() (string, error) {
	claims := jwt.NewOperatorClaims(public(i.operator))
	claims.Name, claims.SystemAccount = "reknit", public(i.system)
	return claims.Encode(i.operator)
}

// accountTokens returns the tokens of the accounts by their public keys.
func (i *installation) accountTokens() (map[string]string, error) {
	nodes, err := i.nodesAccount()
	if err != nil {
		return nil, err
	}
	for _, crossing := range permission.OfNodes(i.Cluster) {
		nodes.Exports.Add(exported(crossing))
	}
	for _, crossing := range permission.OfControl(i.Cluster) {
		nodes.Imports.Add(imported(crossing, i.control))
	}
	return i.signed(i.systemAccount(), i.controlAccount(), nodes)
}

// leafTokens returns those that the server of a site has. Messages cross from the nodes' account into another where the log is, and a
// node's requests are answered there alone.
func (i *installation) leafTokens() (map[string]string, error) {
	nodes, err := i.nodesAccount()
	if err != nil {
		return nil, err
	}
	return i.signed(i.systemAccount(), nodes)
}

func (i *installation) systemAccount() *jwt.AccountClaims {
	system := jwt.NewAccountClaims(public(i.system))
	system.Name = "SYS"
	return system
}

// signed returns the tokens of accounts by their public keys.
func (i *installation) signed(accounts ...*jwt.AccountClaims) (tokens map[string]string, err error) {
	tokens = map[string]string{}
	for _, claims := range accounts {
		claims.Limits.DisallowBearer = true // a token alone must be worth nothing
		var faults jwt.ValidationResults
		claims.Validate(&faults)
		if faults.IsBlocking(true) {
			return nil, fmt.Errorf("account %s: %v", claims.Name, faults.Errors())
		}
		if tokens[claims.Subject], err = claims.Encode(i.operator); err != nil {
			return nil, err
		}
	}
	return tokens, nil
}

// controlAccount is that of the services. The streams are its own.
func (i *installation) controlAccount() *jwt.AccountClaims {
	claims := jwt.NewAccountClaims(public(i.control))
	claims.Name = "control"
	claims.Limits.JetStreamLimits = jwt.JetStreamLimits{
		MemoryStorage: jwt.NoLimit, DiskStorage: jwt.NoLimit, Streams: jwt.NoLimit, Consumer: jwt.NoLimit,
		MaxAckPending: jwt.NoLimit,
	}
	for _, crossing := range permission.OfControl(i.Cluster) {
		claims.Exports.Add(exported(crossing))
	}
	for _, crossing := range permission.OfNodes(i.Cluster) {
		claims.Imports.Add(imported(crossing, i.nodes))
	}
	i.putRevoked(claims)
	return claims
}

// nodesAccount is that of all nodes, before anything crosses into another account. The holder of an institution's signing key can enrol
// nodes with it. It can enrol no node of another institution, whose key it lacks.
func (i *installation) nodesAccount() (*jwt.AccountClaims, error) {
	claims := jwt.NewAccountClaims(public(i.nodes))
	claims.Name, claims.Limits.Payload, claims.Limits.Conn = "nodes", mostMessage, mostConnections
	institutions, err := i.institutions()
	if err != nil {
		return nil, err
	}
	for _, institution := range institutions {
		signer, err := i.signer(institution)
		if err != nil {
			return nil, err
		}
		scope := jwt.NewUserScope()
		scope.Key, scope.Role, scope.Description = public(signer), permission.Node, "nodes of "+institution
		scope.Template.Permissions = rightsOf(permission.OfNode(subject, i.Cluster, inbox(subject)))
		scope.Template.AllowedConnectionTypes.Add(jwt.ConnectionTypeStandard)
		scope.Template.Limits.Subs = mostSubscriptions
		claims.SigningKeys.AddScopedSigner(scope)
	}
	i.putRevoked(claims)
	return claims, nil
}

func (i *installation) putRevoked(claims *jwt.AccountClaims) {
	for key, when := range i.revoked {
		claims.RevokeAt(key, time.Unix(when, 0))
	}
}

func typeOf(crossing permission.Crossing) jwt.ExportType {
	if crossing.Service {
		return jwt.Service
	}
	return jwt.Stream
}

func exported(crossing permission.Crossing) *jwt.Export {
	export := &jwt.Export{Subject: jwt.Subject(crossing.Subject), Type: typeOf(crossing)}
	if crossing.Many {
		export.ResponseType = jwt.ResponseTypeStream
	}
	return export
}

func imported(crossing permission.Crossing, from nkeys.KeyPair) *jwt.Import {
	return &jwt.Import{
		Subject: jwt.Subject(crossing.Subject), LocalSubject: jwt.RenamingSubject(crossing.Local), Account: public(from),
		Type: typeOf(crossing),
	}
}

// userToken returns the token of who connects. A node's token bears no rights of its own: they are those of the signing
// key.
func (i *installation) userToken(role, name string, key nkeys.KeyPair) (string, error) {
	claims := jwt.NewUserClaims(public(key))
	claims.Name, claims.Limits.Subs = name, mostSubscriptions
	claims.AllowedConnectionTypes.Add(jwt.ConnectionTypeStandard)
	switch role {
	case permission.Node:
		signer, err := i.signer(i.Institution)
		if err != nil {
			return "", err
		}
		claims.IssuerAccount = public(i.nodes)
		claims.SetScoped(true) // which takes back what is said above
		return claims.Encode(signer)
	case systemRole:
		return claims.Encode(i.system)
	case keeperRole:
		claims.Permissions = rightsOf(permission.OfKeeper(i.Cluster, inbox(public(key))))
	case leafRole:
		nodes, err := i.nodesAt(name)
		if err != nil {
			return "", err
		}
		return i.leafToken(name, claims, nodes)
	case permission.User:
		claims.Permissions = rightsOf(permission.OfUser(public(key), i.Cluster, inbox(public(key))))
		return claims.Encode(i.nodes)
	default:
		claims.Permissions = rightsOf(permission.OfService(role, public(key), i.Cluster, inbox(public(key))))
	}
	return claims.Encode(i.control)
}
