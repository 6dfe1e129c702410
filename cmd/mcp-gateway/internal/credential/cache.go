package credential

import (
	"cmp"
	"crypto/sha256"
	"fmt"
	"sync"
	"time"
)

// A key is of what a token was issued for.
type key [sha256.Size]byte

// keyOf returns the key of texts. Other texts have another one.
func keyOf(texts ...string) key {
	h := sha256.New()
	for _, text := range texts {
		fmt.Fprintf(h, "%d:%s,", len(text), text)
	}
	return key(h.Sum(nil))
}

type entry struct {
	token string
	until time.Time // it is used
}

// A cache has tokens in memory. It is safe for concurrent use.
type cache struct {
	max int
	now func() time.Time

	mu     sync.Mutex
	tokens map[key]entry
}

func newCache(around *Surroundings) *cache {
	return &cache{max: cmp.Or(around.MaxTokens, defaultMaxTokens), now: around.Now, tokens: make(map[key]entry)}
}

func (c *cache) get(k key) (string, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	e, ok := c.tokens[k]
	return e.token, ok && c.now().Before(e.until)
}

// drop removes a token, unless another one has replaced it.
func (c *cache) drop(k key, token string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.tokens[k].token == token {
		delete(c.tokens, k)
	}
}

// keep caches a token. A full cache loses the tokens that have expired or, without
// any, the one that expires first.
func (c *cache) keep(k key, e entry) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.tokens) >= c.max {
		c.evict()
	}
	c.tokens[k] = e
}

func (c *cache) evict() {
	now, first := c.now(), key{}
	var soonest time.Time
	for k, e := range c.tokens {
		if !now.Before(e.until) {
			delete(c.tokens, k)
		} else if soonest.IsZero() || e.until.Before(soonest) {
			first, soonest = k, e.until
		}
	}
	if len(c.tokens) >= c.max {
		delete(c.tokens, first)
	}
}

// clear removes all tokens.
func (c *cache) clear() {
	c.mu.Lock()
	defer c.mu.Unlock()
	clear(c.tokens)
}
