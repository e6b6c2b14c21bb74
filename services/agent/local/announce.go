package local

import (
	"cmp"
	"encoding/json"
	"log/slog"
	"net/http"
	"time"

	"github.com/reknit/reknit/events"
	"github.com/reknit/reknit/services/agent"
)

// waitsAfter is how long a trainer that starts may find no NATS before the log says so: services that start together need less.
const waitsAfter = 10 * time.Second

// Announced is the line that answers GET /v1/announce.
type Announced struct {
	Announced string `json:"announced"` // id of the node
}

// announce tells the cluster that a trainer is about to join, for as long as its connection is open.
func (s *Server) announce(response http.ResponseWriter, request *http.Request) {
	node := cmp.Or(request.URL.Query().Get("node"), s.config.Node)
	if !events.Token(node) {
		write(response, http.StatusBadRequest, failure{What: "node: expected 1 to 64 characters of A-Z a-z 0-9 - _", Fix: "name the node by REKNIT_NODE"})
		return
	}
	select {
	case s.announcing <- struct{}{}:
		defer func() { <-s.announcing }()
	default:
		write(response, http.StatusServiceUnavailable, failure{What: "too many trainers of this agent start at a time", Fix: "let some join first"})
		return
	}
	told := false
	waits := time.AfterFunc(waitsAfter, func() { slog.Warn("a trainer that starts waits for NATS", "node", node, "url", s.config.URL) })
	defer waits.Stop()
	err := agent.Announce(request.Context(), agent.Config{
		NATSURL: s.config.URL, NATSKit: s.config.Kit, Cluster: s.config.Cluster, Node: node,
	}, func() {
		told = true
		waits.Stop()
		_ = json.NewEncoder(response).Encode(Announced{node}) // a caller that is gone ends the request
		_ = http.NewResponseController(response).Flush()
	})
	switch {
	case err == nil:
	case told:
		slog.Warn("a trainer that starts is not announced any more", "node", node, "error", err)
	default:
		failed := failureOf(err)
		write(response, failed.status, failed)
	}
}
