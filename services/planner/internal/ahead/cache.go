package ahead

import (
	"slices"
	"sync"

	"github.com/reknit/reknit/services/planner/policy"
)

// Cache holds what the policy answers to situations that may come. It compares whole situations: there is no key that
// two could share.
type Cache struct {
	mutex   sync.Mutex
	answers []answer
}

type answer struct {
	situation  policy.Canonical
	candidates []policy.Candidate
}

// Answer returns the candidates of a situation, if they are there. They must not be changed.
func (c *Cache) Answer(situation policy.Canonical) ([]policy.Candidate, bool) {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	for _, answer := range c.answers {
		if answer.situation.Same(situation) {
			return answer.candidates, true
		}
	}
	return nil, false
}

func (c *Cache) add(situation policy.Canonical, candidates []policy.Candidate) {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	c.answers = append(c.answers, answer{situation, candidates})
}

// retain drops the answers to all other situations.
func (c *Cache) retain(situations []policy.Canonical) {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	c.answers = slices.DeleteFunc(c.answers, func(answer answer) bool {
		return !slices.ContainsFunc(situations, answer.situation.Same)
	})
}

// Len is how many answers there are.
func (c *Cache) Len() int {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	return len(c.answers)
}
