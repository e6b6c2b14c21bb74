package ahead

import (
	"reflect"
	"sync"

	"github.com/reknit/reknit/services/planner/search"
)

// mostSearches bounds what is remembered, to 5 MB with 1,000 nodes.
const mostSearches = 32

// Searches remembers the latest searches. All losses of one of some equal nodes are one problem to search, which takes
// most of the time of an answer, and when as many are back as there were, that is one that was solved.
type Searches struct {
	mutex  sync.Mutex
	latest []solved // the last used last
}

type solved struct {
	problem search.Problem
	most    int
	result  search.Result
	err     error
}

// Find answers as search.Find does. The result must not be changed. A problem with a floor is not remembered: that is a
// function, and two of them cannot be compared.
func (s *Searches) Find(problem search.Problem, most int) (search.Result, error) {
	if problem.Floor != nil {
		return search.Find(problem, most)
	}
	if known, found := s.take(problem, most); found {
		return known.result, known.err
	}
	result, err := search.Find(problem, most)
	s.mutex.Lock()
	defer s.mutex.Unlock()
	s.latest = append(s.latest, solved{problem, most, result, err})
	s.latest = s.latest[max(0, len(s.latest)-mostSearches):]
	return result, err
}

// take finds a problem that was solved, which is the last used then.
func (s *Searches) take(problem search.Problem, most int) (solved, bool) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	for i, known := range s.latest {
		if known.most == most && reflect.DeepEqual(known.problem, problem) {
			s.latest = append(append(s.latest[:i:i], s.latest[i+1:]...), known)
			return known, true
		}
	}
	return solved{}, false
}
