package observation

import (
	"encoding/json"
	"flag"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"
)

var prometheus = flag.String("prometheus", "", "the server; without one no query is tried")

const configured = "../../deploy/observe/"

func freeAddress(t *testing.T) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	return listener.Addr().String()
}

// server is a Prometheus that fetches from the services.
type server struct {
	*testing.T
	address string
}

// fetch starts one with the configuration that deploy/ has, for targets of the test.
func (w *watched) fetch() *server {
	w.Helper()
	s := &server{w.T, freeAddress(w.T)}
	folder := w.TempDir()
	config := string(s.read(configured + "prometheus.yml"))
	config = strings.Replace(config, "monitor:8080, negotiator:8080, planner:8080, restorer:8080", w.metrics, 1)
	config = strings.Replace(config, "scrape_interval: 5s", "scrape_interval: 500ms", 1)
	if !strings.Contains(config, w.metrics) || !strings.Contains(config, "500ms") {
		w.Fatalf("deploy/observe/prometheus.yml has other targets than this test replaces:\n%s", config)
	}
	for name, content := range map[string]string{"prometheus.yml": config, "alerts.yml": string(s.read(configured + "alerts.yml"))} {
		if err := os.WriteFile(filepath.Join(folder, name), []byte(content), 0o600); err != nil {
			w.Fatal(err)
		}
	}
	process := exec.Command(*prometheus, "--config.file="+filepath.Join(folder, "prometheus.yml"), "--log.level=error",
		"--storage.tsdb.path="+filepath.Join(folder, "data"), "--web.listen-address="+s.address)
	process.Stderr = os.Stderr
	if err := process.Start(); err != nil {
		w.Fatal(err)
	}
	w.Cleanup(func() { _ = process.Process.Kill(); _ = process.Wait() })
	return s
}

func (s *server) read(file string) []byte {
	s.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		s.Fatal(err)
	}
	return data
}

// ask returns how many series answer a query, and why there is no answer.
func (s *server) ask(query string) (series int, problem string) {
	response, err := http.Get("http://" + s.address + "/api/v1/query?query=" + url.QueryEscape(query))
	if err != nil {
		return 0, err.Error()
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	var answer struct {
		Error string
		Data  struct{ Result []json.RawMessage }
	}
	if err == nil {
		err = json.Unmarshal(body, &answer)
	}
	if err != nil {
		return 0, err.Error()
	}
	return len(answer.Data.Result), answer.Error
}

// expect waits until a query has an answer.
func (s *server) expect(query string) {
	s.Helper()
	for deadline := time.Now().Add(patience); ; time.Sleep(500 * time.Millisecond) {
		series, problem := s.ask(query)
		if series > 0 {
			return
		}
		if time.Now().After(deadline) {
			s.Errorf("%s: no series, %s", query, problem)
			return
		}
	}
}

// queries of the dashboard, for all clusters.
func (s *server) queries() (all []string) {
	s.Helper()
	var dashboard struct {
		Panels []struct{ Targets []struct{ Expr string } }
	}
	if err := json.Unmarshal(s.read(configured+"dashboard.json"), &dashboard); err != nil {
		s.Fatal(err)
	}
	for _, panel := range dashboard.Panels {
		for _, target := range panel.Targets {
			all = append(all, strings.ReplaceAll(target.Expr, "$cluster", ".*"))
		}
	}
	return all
}

// conditions of the alerts, by name.
func (s *server) conditions() map[string]string {
	s.Helper()
	var rules struct {
		Groups []struct {
			Rules []struct{ Alert, Expr string }
		}
	}
	if err := yaml.Unmarshal(s.read(configured+"alerts.yml"), &rules); err != nil {
		s.Fatal(err)
	}
	all := map[string]string{}
	for _, group := range rules.Groups {
		for _, rule := range group.Rules {
			all[rule.Alert] = rule.Expr
		}
	}
	return all
}

func TestEachQueryOfTheDashboardHasAnAnswerAndEachAlertACondition(t *testing.T) {
	if *prometheus == "" {
		t.Skip("no Prometheus was given: make test-observation tries the queries on Debian's")
	}
	w := watch(t)
	third := w.begin("n3")
	w.begin("n1")
	w.begin("n2")
	w.works(1, "n1", "n2", "n3")
	s := w.fetch()
	s.expect(`reknit_cluster_generation == 1`)
	if err := third.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	w.works(2, "n1", "n2")
	s.expect(`reknit_change_duration_seconds_count{kind="failure"} == 1`)
	for _, query := range s.queries() {
		s.expect(query)
	}
	for alert, condition := range s.conditions() {
		if series, problem := s.ask(condition); problem != "" || series > 0 && alert != "ReknitLayersAlone" {
			t.Errorf("%s holds for %d series of a cluster that is well; %s", alert, series, problem)
		}
	}
}
