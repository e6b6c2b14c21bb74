package page

import (
	"crypto/sha256"
	"crypto/subtle"
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"strconv"
	"time"

	"github.com/reknit/reknit/services/monitor/machine/view"
	"github.com/reknit/reknit/shared/bus"
)

//go:embed static
var static embed.FS

const (
	mostViewers    = 64 // at a time; each costs a goroutine and, while it is written to, what it is told
	requestTimeout = 5 * time.Second
	// writeTimeout is how long a viewer may take what it is told. A viewer that takes longer is left, and comes back by
	// itself.
	writeTimeout = 10 * time.Second
	keepAlive    = 15 * time.Second
	// pause is the least between two messages to a viewer.
	pause = 200 * time.Millisecond
)

func (p *Page) routes(b *bus.Bus) http.Handler {
	files, err := fs.Sub(static, "static")
	if err != nil {
		panic(err) // it is embedded
	}
	viewers := make(chan struct{}, mostViewers)
	mux := http.NewServeMux()
	mux.Handle("GET /", http.FileServerFS(files))
	mux.Handle("GET /events", p.known(bounded(viewers, p.stream)))
	mux.Handle("GET /changes/{generation}", p.known(bounded(viewers, p.change)))
	if p.config.Token != "" { // else nobody is known, and nobody may ask for anything
		mux.Handle("POST /leave/{node}", p.known(bounded(viewers, leave(b))))
	}
	return secure(mux)
}

// secure has browsers load nothing from elsewhere, and tell nobody the address, which may hold a token.
func secure(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		header := w.Header()
		header.Set("Content-Security-Policy", "default-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'")
		header.Set("Referrer-Policy", "no-referrer")
		header.Set("X-Content-Type-Options", "nosniff")
		header.Set("Cache-Control", "no-store")
		next.ServeHTTP(w, r)
	})
}

// known lets in who knows the token, where there is one. Comparing takes as long whatever is given.
func (p *Page) known(next http.HandlerFunc) http.Handler {
	want := sha256.Sum256([]byte(p.config.Token))
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		given := sha256.Sum256([]byte(r.URL.Query().Get("token")))
		if p.config.Token != "" && subtle.ConstantTimeCompare(want[:], given[:]) != 1 {
			http.Error(w, "token: expected the one of the link that was shared", http.StatusForbidden)
			return
		}
		next(w, r)
	})
}

func bounded(viewers chan struct{}, next http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		select {
		case viewers <- struct{}{}:
			defer func() { <-viewers }()
			next(w, r)
		default:
			http.Error(w, fmt.Sprintf("expected at most %d viewers at a time", mostViewers), http.StatusServiceUnavailable)
		}
	}
}

// stream tells a viewer what changes, as server-sent events: first everything, or what changed since it was here last.
func (p *Page) stream(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("X-Accel-Buffering", "no") // nginx
	version := p.board.named(r.Header.Get("Last-Event-ID"))
	isNew := version == 0
	control := http.NewResponseController(w)
	for r.Context().Err() == nil {
		news, now, anew, more := p.board.since(version)
		message, err := p.message(news, now, anew || isNew)
		if err == nil {
			err = errors.Join(control.SetWriteDeadline(time.Now().Add(writeTimeout)), write(w, message), control.Flush())
		}
		if err != nil {
			return
		}
		version, isNew = now, isNew && len(news) == 0
		select {
		case <-time.After(pause):
		case <-r.Context().Done():
		}
		select {
		case <-more:
		case <-time.After(keepAlive):
		case <-r.Context().Done():
		}
	}
}

func write(w http.ResponseWriter, message []byte) error {
	_, err := w.Write(message)
	return err
}

// message is a server-sent event; anew: the viewer is to forget what it knows.
func (p *Page) message(news []view.News, version uint64, anew bool) ([]byte, error) {
	if len(news) == 0 {
		return []byte(": nothing new\n\n"), nil
	}
	parts := make(map[string]json.RawMessage, len(news))
	for _, one := range news {
		parts[one.Key] = one.Data
	}
	data, err := json.Marshal(struct {
		At    int64                      `json:"at"` // milliseconds since 1970
		Anew  bool                       `json:"anew"`
		Parts map[string]json.RawMessage `json:"parts"`
	}{time.Now().UnixMilli(), anew, parts})
	return fmt.Appendf(nil, "id: %s\ndata: %s\n\n", p.board.name(version), data), err
}

// change tells all about one change.
func (p *Page) change(w http.ResponseWriter, r *http.Request) {
	generation, err := strconv.ParseUint(r.PathValue("generation"), 10, 64)
	if err != nil {
		http.Error(w, "generation: expected a number", http.StatusBadRequest)
		return
	}
	answered := make(chan answer, 1)
	select {
	case p.asks <- ask{generation, answered}:
	case <-time.After(requestTimeout):
		http.Error(w, "the page is not ready: it reads the log", http.StatusServiceUnavailable)
		return
	case <-r.Context().Done():
		return
	}
	found := <-answered
	if !found.found {
		http.Error(w, fmt.Sprintf("generation %d: it is not among those that are shown", generation), http.StatusNotFound)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	if err := http.NewResponseController(w).SetWriteDeadline(time.Now().Add(writeTimeout)); err == nil {
		_ = json.NewEncoder(w).Encode(found.detail) // who went needs no answer
	}
}
