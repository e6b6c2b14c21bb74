package security

import (
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"
)

// waits is how long a test waits for what must happen.
const waits = 2 * time.Minute

// listening is the log of this process, in which who is refused is told with the reason.
type listening struct {
	mutex sync.Mutex
	text  strings.Builder
}

func (l *listening) Write(line []byte) (int, error) {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	return l.text.Write(line)
}

func listenToTheLog(t *testing.T) *listening {
	l, before := new(listening), slog.Default()
	slog.SetDefault(slog.New(slog.NewTextHandler(l, nil)))
	t.Cleanup(func() { slog.SetDefault(before) })
	return l
}

// isTold waits for a line that has all these words, and forgets what was told before.
func (l *listening) isTold(words []string) bool {
	for deadline := time.Now().Add(waits); time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
		l.mutex.Lock()
		text := l.text.String()
		l.mutex.Unlock()
		for line := range strings.Lines(text) {
			if hasAll(line, words) {
				return true
			}
		}
	}
	return false
}

func hasAll(text string, words []string) bool {
	for _, word := range words {
		if !strings.Contains(text, word) {
			return false
		}
	}
	return true
}

// count is how often something was told.
func (l *listening) count(words string) int {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	return strings.Count(l.text.String(), words)
}

func (l *listening) forget() {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	l.text.Reset()
}
