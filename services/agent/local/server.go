// Package local lets a trainer in another process, of any language, take part: HTTP and JSON on a Unix socket around an
// agent.Session, and files that both map. README.md says what the calls are.
package local

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"github.com/reknit/reknit/events"
	"github.com/reknit/reknit/services/agent"
	"github.com/reknit/reknit/services/agent/consent"
	"github.com/reknit/reknit/services/agent/snapshots"
)

// Config is what an agent must know that serves trainers.
type Config struct {
	URL        string // of NATS
	Kit        string // folder of keys and certificates; empty where NATS asks for none
	Cluster    string
	Node       string   // id of a trainer that names none
	Listen     string   // host:port where other nodes measure and watch the link to this one; port 0 takes a free one
	Advertise  string   // where they reach it; empty: where it listens
	Site       string   // where the node stands; empty: nobody says
	Neighbours []string // ids of the nodes to which the trainers want direct links; none: to each
	ShardPort  int      // where others fetch units from; 0 takes a free one
	ShardDir   string   // of what is given, meanwhile; empty: the temporary directory
	StateDir   string   // of the trainers' files; empty: in shared memory
	Snapshots  snapshots.Settings
	Consent    consent.Policy // of every trainer's node
	Parent     bool           // whoever serves is the trainers' parent, and tells by Gone how they ended
	Stuck      func()         // a trainer hangs, and nobody waits for it any more; nil: nobody wants to know
	Stays      func()         // a trainer may not leave, and may ask again; nil: nobody wants to know

	memory  *snapshots.Memory // of all trainers, one after the other
	forgets *atomic.Bool      // the agent ends with its trainers, and keeps nothing of what they leave
	started time.Time         // by who is their parent; zero: others start them
}

func (c Config) listenHost() string {
	host, _, _ := net.SplitHostPort(c.Listen) // the watch listens there already
	return host
}

// MostTrainers bounds the trainers of one agent: those of a host.
const MostTrainers = 64

// Server serves the local API.
type Server struct {
	Socket string  // that trainers connect to
	folder *folder // of the socket; nil where it was not made here

	config  Config
	context context.Context // of all trainers
	end     context.CancelFunc
	http    *http.Server
	served  chan struct{} // closed when nobody can connect any more

	announcing chan struct{} // a token for each trainer that is announced

	mutex    sync.Mutex
	trainers map[string]*trainer // by session
	joining  map[string]bool     // nodes whose join is under way
	kept     map[string]*holder  // by node: who keeps what the last script left, where none has joined since
	last     chan struct{}       // closed when no script comes any more
	known    bool                // the process that runs had a session
	leaving  *leave              // was asked of all
	refused  error               // why the last that asked was not taken, and would not be if it asked again
}

// leave is a wish to go.
type leave struct {
	Reason          string  `json:"reason"`
	DeadlineSeconds float64 `json:"deadlineSeconds"`
}

type fail struct {
	Reason string `json:"reason"`
	InStep bool   `json:"inStep"` // it came in a step that the trainer had not been told to give up
}

// readHeaderTimeout bounds a connection that says nothing.
const readHeaderTimeout = 5 * time.Second

// Serve returns when trainers may connect to the socket, by default one in a new temporary folder. A socket that nobody
// serves any more is replaced.
func Serve(ctx context.Context, config Config, socket string) (s *Server, err error) {
	config.memory, config.forgets = new(snapshots.Memory), new(atomic.Bool)
	if config.Parent {
		config.started = time.Now()
	}
	sweep(stateParent(config.StateDir), folderPrefix, 0) // before a join does: gigabytes of a shared memory may be needed elsewhere
	s = &Server{
		Socket: socket, config: config, served: make(chan struct{}),
		trainers: map[string]*trainer{}, joining: map[string]bool{}, kept: map[string]*holder{}, last: make(chan struct{}), announcing: make(chan struct{}, MostTrainers),
	}
	if socket == "" {
		if s.folder, err = makeFolder(os.TempDir(), socketPrefix); err != nil {
			return nil, err
		}
		s.Socket = filepath.Join(s.folder.path, "agent.sock")
	}
	listener, err := listen(s.Socket)
	if err != nil {
		s.removeFolder()
		return nil, fmt.Errorf("REKNIT_AGENT_SOCKET: %w", err)
	}
	s.context, s.end = context.WithCancel(context.WithoutCancel(ctx))
	s.http = &http.Server{
		Handler: s.routes(), ReadHeaderTimeout: readHeaderTimeout,
		ConnContext: func(ctx context.Context, connection net.Conn) context.Context {
			return context.WithValue(ctx, callerKey{}, processOf(connection))
		},
	}
	go func() {
		defer close(s.served)
		s.http.Serve(listener)
	}()
	return s, nil
}

// removeFolder removes the socket's folder, where it was made here.
func (s *Server) removeFolder() {
	if s.folder != nil {
		s.folder.remove()
	}
}

// listen makes the socket, for this user only.
func listen(socket string) (net.Listener, error) {
	if connection, err := net.Dial("unix", socket); err == nil {
		connection.Close()
		return nil, fmt.Errorf("%s: expected no other agent there", socket)
	}
	if about, err := os.Lstat(socket); err == nil && about.Mode()&os.ModeSocket == 0 {
		return nil, fmt.Errorf("%s: expected a socket or nothing there", socket)
	}
	if err := os.Remove(socket); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	listener, err := net.Listen("unix", socket)
	if err == nil {
		err = os.Chmod(socket, 0o600)
	}
	return listener, err
}

// Leave has every trainer leave the cluster, those to come as well.
func (s *Server) Leave(reason string, deadline time.Duration) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	s.leaving = &leave{reason, deadline.Seconds()}
	for _, t := range s.trainers {
		t.leave(s.leaving)
	}
}

// GiveUp has the cluster do without all trainers, though their processes may run on for a while. Nothing is kept of what they leave, for
// the agent ends with them, and none joins again. The cluster is told of all at once, and nobody waits for it here.
func (s *Server) GiveUp(how string) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	s.config.forgets.Store(true)
	for _, t := range s.trainers {
		go t.tellExit(how, -1)
	}
}

// Stay takes the wish to leave back for trainers to come.
func (s *Server) Stay() {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	s.leaving = nil
}

// Trainers returns how many trainers have a session.
func (s *Server) Trainers() int {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	return len(s.trainers)
}

// Knows reports whether a trainer has a session, or had one in its process, waits for one, for NATS, say, or is announced: it joins once it
// has its data.
func (s *Server) Knows() bool {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	return s.known || len(s.trainers)+len(s.joining)+len(s.announcing) > 0
}

// Refused returns why the trainer that asked last was not taken, where it would not be if it asked again: its join is no
// proper one, or it trains another job than the cluster. Else nil.
func (s *Server) Refused() error {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	return s.refused
}

// Idle is closed when no trainer has a session any more.
func (s *Server) Idle() <-chan struct{} {
	idle := make(chan struct{})
	go func() {
		defer close(idle)
		for _, t := range s.all() {
			<-t.over
		}
	}()
	return idle
}

// parentTime is for a parent to tell how a process ended whose session has just ended.
const parentTime = 100 * time.Millisecond

// hungUp ends a trainer whose session stream has ended.
func (s *Server) hungUp(t *trainer) {
	if s.config.Parent {
		select {
		case <-t.ended.Done():
		case <-time.After(parentTime):
		}
	}
	t.end(exit{how: "its session ended", code: -1})
}

// Gone ends the sessions of all trainers, whose process is known to have ended, and returns when they have. The code
// is that of os.ProcessState.
func (s *Server) Gone(how string, code int) {
	all := s.all()
	for _, t := range all {
		t.end(exit{how: how, code: code})
	}
	for _, t := range all {
		<-t.over
	}
	s.mutex.Lock()
	defer s.mutex.Unlock()
	s.known = false
}

func (s *Server) all() []*trainer {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	var all []*trainer
	for _, t := range s.trainers {
		all = append(all, t)
	}
	return all
}

// Close ends all sessions without a word.
func (s *Server) Close() {
	for _, t := range s.all() {
		t.end(errClose)
		<-t.over
	}
	s.end()
	s.http.Close()
	<-s.served
	for _, holder := range s.holders() {
		if left := holder.stop(); left != nil {
			holder.tellEnd()
			left.files.remove()
		}
	}
	s.removeFolder()
}

var errForgets = failure{http.StatusNotFound, "the agent ends with its trainer, which was told to end", "save what is to stay, and end"}

// add makes a trainer of a join, and forgets it when it is over.
func (s *Server) add(ctx context.Context, joining Joining, job events.Job) (session string, t *trainer, err error) {
	for before := s.ending(joining.Node); before != nil; before = s.ending(joining.Node) {
		select {
		case <-before.over:
		case <-ctx.Done():
			return "", nil, ctx.Err()
		}
	}
	holder, err := s.reserve(joining)
	if err != nil {
		return "", nil, err
	}
	before := holder.stop()
	t, err = start(ctx, s.config, joining, job, before)
	s.mutex.Lock()
	defer s.mutex.Unlock()
	delete(s.joining, joining.Node)
	if err != nil {
		s.keep(before)
		return "", nil, err
	}
	if s.config.forgets.Load() { // since it was reserved
		go t.refuse()
		return "", nil, errForgets
	}
	session = rand.Text()
	s.trainers[session], s.refused, s.known = t, nil, true
	s.limit()
	if s.leaving != nil {
		t.leave(s.leaving)
	}
	stop := context.AfterFunc(s.context, func() { t.end(errClose) })
	go func() {
		defer close(t.over)
		t.run()
		stop()
		s.mutex.Lock()
		defer s.mutex.Unlock()
		delete(s.trainers, session)
		s.keep(t.kept)
		if why := context.Cause(t.ended); errors.Is(why, agent.ErrOtherJob) || errors.Is(why, agent.ErrRevoked) {
			s.refused = why
		}
		s.limit()
	}()
	slog.Info("a trainer joins", "node", t.node, "dir", t.dir, "units", len(joining.Units))
	return session, t, nil
}

// The process may use so much beside the state that it maps: what it sends and receives is garbage soon. It is
// collected before it is as much as the state. The process sends and receives 50 MB at a time. With less room than
// twice that a giver of 102 MiB spent 2.5 s of processor time instead of 1.1 s, in the collector.
const (
	leastMemory = 96 << 20
	moreMemory  = 32 << 20
	memoryShare = 10 // one part in ten of the state
)

// limit bounds the memory of the process, unless whoever started it did, or snapshots are copies of the state: no
// collection would bring those below it. Called with the mutex held.
func (s *Server) limit() {
	if os.Getenv("GOMEMLIMIT") != "" || s.config.Snapshots.On() {
		return
	}
	limit := int64(moreMemory)
	for _, t := range s.trainers {
		limit += t.bytes / memoryShare
	}
	debug.SetMemoryLimit(max(limit, leastMemory))
}

// ending returns the trainer of a node whose session is just ending, or ends here because nobody will open it.
func (s *Server) ending(node string) *trainer {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	for _, t := range s.trainers {
		if t.node == node && t.abandoned() {
			t.end(exit{how: "its process ended", code: -1})
		}
		if t.node == node && t.ended.Err() != nil {
			return t
		}
	}
	return nil
}

// reserve keeps two trainers from being one node, and returns who keeps what the node's script before left; nil for nobody.
func (s *Server) reserve(joining Joining) (*holder, error) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	node := joining.Node
	if s.config.forgets.Load() {
		return nil, errForgets
	}
	if len(s.trainers)+len(s.joining) >= MostTrainers {
		return nil, errOrder{fmt.Sprintf("%d trainers have joined", MostTrainers), "start another agent"}
	}
	taken := s.joining[node]
	for _, t := range s.trainers {
		taken = taken || t.node == node
	}
	if taken {
		return nil, errOrder{fmt.Sprintf("node %q has joined here already", node), "join once, or give each trainer another node"}
	}
	before := s.kept[node]
	if before != nil {
		if err := before.left.fits(joining); err != nil {
			return nil, err
		}
	}
	delete(s.kept, node)
	s.joining[node] = true
	return before, nil
}

func (s *Server) trainer(session string) *trainer {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	return s.trainers[session]
}
