package page

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/reknit/reknit/events"
	"github.com/reknit/reknit/shared/bus"
	"github.com/reknit/reknit/shared/embedded"
)

// site is a cluster of which the test is everybody, with its page.
type site struct {
	t    *testing.T
	bus  *bus.Bus
	page *Page
	url  string
	said int
}

func newSite(t *testing.T, token string) *site {
	t.Helper()
	server, err := embedded.Start(embedded.Config{StoreDir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.Shutdown)
	b, err := bus.Connect(t.Context(), bus.Config{URL: server.URL(), Name: "test", Cluster: "c"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.Close)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := listener.Addr().String()
	listener.Close()
	p, err := Open(t.Context(), b, Config{Address: address, Token: token})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	return &site{t: t, bus: b, page: p, url: "http://" + address}
}

func (s *site) lose(node string) {
	s.t.Helper()
	s.said++
	event := events.Speaker{Source: "/negotiator", Cluster: "c"}.First(time.Now(), fmt.Sprint(s.said), events.NegotiationOpened, "g",
		&events.Opening{Negotiation: fmt.Sprint("g", s.said), Generation: uint64(s.said), Changes: []events.Change{{Kind: events.ChangeFailure, Node: node}}})
	if _, err := s.bus.Publish(s.t.Context(), event); err != nil {
		s.t.Fatal(err)
	}
}

// commit brings about a plan of these nodes, a stage each.
func (s *site) commit(nodes ...string) {
	s.t.Helper()
	plan := &events.Plan{
		Cluster: "c", Generation: 1, Parent: "p", Policy: "repipeline", Data: events.Data{GlobalBatch: 1, MicroBatch: 1},
		Pipelines: []events.Pipeline{{MicroBatches: 1}},
	}
	for i, node := range nodes {
		plan.Nodes = append(plan.Nodes, events.Member{Node: node, Incarnation: "i", Address: "a"})
		plan.Pipelines[0].Stages = append(plan.Pipelines[0].Stages, events.Stage{Node: node, Layers: events.Range{First: i, End: i + 1}})
	}
	if err := s.bus.Provision(s.t.Context()); err != nil {
		s.t.Fatal(err)
	}
	event := events.Speaker{Source: "/negotiator", Cluster: "c"}.First(time.Now(), "plan", events.PlanCommitted, "1", plan)
	if _, err := s.bus.Publish(s.t.Context(), event); err != nil {
		s.t.Fatal(err)
	}
}

func (s *site) get(path string) (status int, body string) {
	s.t.Helper()
	response, err := http.Get(s.url + path)
	if err != nil {
		s.t.Fatal(err)
	}
	defer response.Body.Close()
	data, err := io.ReadAll(response.Body)
	if err != nil {
		s.t.Fatal(err)
	}
	return response.StatusCode, string(data)
}

// message is what a viewer hears.
type message struct {
	id    string
	Anew  bool                       `json:"anew"`
	Parts map[string]json.RawMessage `json:"parts"`
}

// watch hears what a viewer does that saw the page last at an id.
func (s *site) watch(id string) <-chan message {
	s.t.Helper()
	ctx, stop := context.WithCancel(context.Background())
	s.t.Cleanup(stop)
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, s.url+"/events", nil)
	if err != nil {
		s.t.Fatal(err)
	}
	request.Header.Set("Last-Event-ID", id)
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		s.t.Fatal(err)
	}
	heard := make(chan message, 100)
	go func() {
		defer close(heard)
		defer response.Body.Close()
		lines, id := bufio.NewReader(response.Body), ""
		for {
			line, err := lines.ReadString('\n')
			if err != nil {
				return
			}
			name, value, _ := strings.Cut(strings.TrimSpace(line), ": ")
			switch name {
			case "id":
				id = value
			case "data":
				one := message{id: id}
				if json.Unmarshal([]byte(value), &one) == nil {
					heard <- one
				}
			}
		}
	}()
	return heard
}

// until returns the message that tells something of a part.
func until(t *testing.T, heard <-chan message, key, says string) message {
	t.Helper()
	for ends := time.After(2 * time.Minute); ; {
		select {
		case one := <-heard:
			if strings.Contains(string(one.Parts[key]), says) {
				return one
			}
		case <-ends:
			t.Fatalf("nothing was heard of %s that has %q", key, says)
		}
	}
}

func TestAViewerHearsEverythingAndThenWhatChanges(t *testing.T) {
	s := newSite(t, "")
	heard := s.watch("")
	first := until(t, heard, "now", `"c"`)
	if !first.Anew {
		t.Error("the first message leaves what was known before")
	}
	s.lose("n4")
	news := until(t, heard, "change/1", "failure of n4")
	if _, again := news.Parts["links"]; again || news.Anew {
		t.Errorf("with the change come %d parts, expected those that changed", len(news.Parts))
	}
	back := s.watch(news.id)
	s.lose("n5")
	again := <-back
	if _, known := again.Parts["change/1"]; known || again.Anew {
		t.Errorf("who comes back hears again what it knew: %+v", again)
	}
	other := <-s.watch("another-run-7")
	if _, known := other.Parts["change/1"]; !known || !other.Anew {
		t.Errorf("who comes from another run is told %d parts, expected everything anew", len(other.Parts))
	}
}

func TestADetailOfAChangeIsToldOnDemand(t *testing.T) {
	s := newSite(t, "")
	s.lose("n4")
	until(t, s.watch(""), "change/1", "n4")
	if status, body := s.get("/changes/1"); status != http.StatusOK || !strings.Contains(body, `"what":"failure of n4"`) {
		t.Errorf("%d: %s", status, body)
	}
	for path, want := range map[string]int{"/changes/7": http.StatusNotFound, "/changes/x": http.StatusBadRequest, "/nothing": http.StatusNotFound} {
		if status, body := s.get(path); status != want {
			t.Errorf("%s: %d %s, expected %d", path, status, body, want)
		}
	}
}

func TestWhoDoesNotKnowTheTokenIsToldNothing(t *testing.T) {
	s := newSite(t, "sixteen-letters!")
	for _, path := range []string{"/events", "/changes/1", "/events?token=sixteen-letters", "/changes/1?token="} {
		if status, body := s.get(path); status != http.StatusForbidden || strings.Contains(body, "sixteen") {
			t.Errorf("%s: %d %s, expected that it is forbidden", path, status, body)
		}
	}
	if status, _ := s.get("/changes/1?token=sixteen-letters!"); status != http.StatusNotFound && status != http.StatusOK {
		t.Errorf("with the token: %d", status)
	}
	if status, body := s.get("/"); status != http.StatusOK || strings.Contains(body, "sixteen") {
		t.Errorf("the page itself, which tells nothing: %d", status)
	}
}

func TestThePageOnlyReads(t *testing.T) {
	s := newSite(t, "")
	for _, method := range []string{http.MethodPost, http.MethodPut, http.MethodDelete, http.MethodPatch} {
		for _, path := range []string{"/", "/events", "/changes/1"} {
			request := httptest.NewRequest(method, path, nil)
			answer := httptest.NewRecorder()
			s.page.routes(s.bus).ServeHTTP(answer, request)
			if answer.Code != http.StatusMethodNotAllowed {
				t.Errorf("%s %s: %d, expected %d", method, path, answer.Code, http.StatusMethodNotAllowed)
			}
		}
	}
}

func TestViewersBeyondTheBoundAreToldSo(t *testing.T) {
	s := newSite(t, "")
	var last <-chan message
	for range mostViewers {
		last = s.watch("")
	}
	until(t, last, "now", "")
	if status, body := s.get("/events"); status != http.StatusServiceUnavailable || !strings.Contains(body, "64") {
		t.Errorf("%d %s, expected that there are too many", status, body)
	}
}

// TestAViewerThatTakesNothingHoldsUpNobody has a viewer that never reads: the next one hears all the same, and heartbeats are taken.
func TestAViewerThatTakesNothingHoldsUpNobody(t *testing.T) {
	s := newSite(t, "")
	stuck, err := net.Dial("tcp", strings.TrimPrefix(s.url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer stuck.Close()
	fmt.Fprint(stuck, "GET /events HTTP/1.1\r\nHost: x\r\n\r\n")
	heard := s.watch("")
	until(t, heard, "now", "")
	for range 4 * mostWaiting {
		s.page.Hear(events.Pulse{Node: "n1", Incarnation: "i"})
	}
	s.lose("n4")
	until(t, heard, "change/1", "n4")
}

func TestAnAddressThatIsTakenIsNamedByItsSetting(t *testing.T) {
	s := newSite(t, "")
	p, err := Open(t.Context(), s.bus, Config{Address: strings.TrimPrefix(s.url, "http://")})
	if err == nil || !strings.Contains(err.Error(), "REKNIT_PAGE_ADDRESS: expected a free host:port") {
		t.Errorf("opened at an address that is taken: %v", err)
	}
	if p != nil {
		p.Close()
	}
}

var elsewhere = regexp.MustCompile(`(?:src|href|from|import|url)\s*[=(]?\s*["'(](?:https?:)?//`)

func TestNothingIsLoadedFromElsewhere(t *testing.T) {
	files, bytes := 0, 0
	err := fs.WalkDir(static, "static", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		data, err := static.ReadFile(name)
		files, bytes = files+1, bytes+len(data)
		for line := range strings.Lines(string(data)) {
			if elsewhere.MatchString(line) && !strings.Contains(line, "<a href=") {
				t.Errorf("%s: %s", name, line)
			}
		}
		return err
	})
	if err != nil || files == 0 || bytes > 80<<10 {
		t.Errorf("%d files of %d bytes: expected some, of 80 KiB at most (%v)", files, bytes, err)
	}
}

// post asks the page for something, and returns how that ended.
func (s *site) post(path string) (status int) {
	s.t.Helper()
	response, err := http.Post(s.url+path, "", nil)
	if err != nil {
		s.t.Fatal(err)
	}
	response.Body.Close()
	return response.StatusCode
}

func TestWhoKnowsTheTokenMayHaveAMemberLeave(t *testing.T) {
	const token = "a token of 16 or more"
	s := newSite(t, token)
	s.commit("n1", "n2")
	query := "?token=" + url.QueryEscape(token)
	for path, expected := range map[string]int{
		"/leave/n2": http.StatusForbidden, "/leave/n2?token=another": http.StatusForbidden, "/leave/n3" + query: http.StatusNotFound,
		"/leave/%22" + query: http.StatusNotFound,
	} {
		if status := s.post(path); status != expected {
			t.Errorf("POST %s: %d, want %d", path, status, expected)
		}
	}
	if status := s.post("/leave/n2" + query); status != http.StatusAccepted {
		t.Fatalf("POST /leave/n2: %d, want 202", status)
	}
	last, found, err := s.bus.LastEvent(t.Context(), events.EventStream, events.EventSubject("c", events.LeaveRequested, "*"))
	if err != nil || !found {
		t.Fatalf("no request to leave is in the log: %v", err)
	}
	if leave, err := events.Open[events.Leave](last); err != nil || leave.Node != "n2" || leave.Reason != leaveReason {
		t.Errorf("the log has %+v (%v), want that n2 is to leave", leave, err)
	}
}

func TestWithoutATokenNobodyCanHaveANodeLeave(t *testing.T) {
	s := newSite(t, "")
	s.commit("n1", "n2")
	if status := s.post("/leave/n2"); status/100 == 2 {
		t.Errorf("POST /leave/n2: %d, want a refusal", status)
	}
	if status, _ := s.get("/"); status != http.StatusOK {
		t.Errorf("GET /: %d, want 200: the page itself is for everybody", status)
	}
}
