package jwks

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// Limits of an issuer's keys.
const (
	maxBytes = 1 << 20
	timeout  = 5 * time.Second
	pause    = 10 * time.Second // between two readings; after a failure at most
	retry    = time.Second      // after the first failure; each further one doubles it
	renewal  = time.Hour        // after which keys are read again
	maxAge   = 24 * time.Hour   // for how long they are good if they cannot be
)

var (
	// ErrUnavailable means that the keys of an issuer cannot be read, so that no
	// token can be verified.
	ErrUnavailable = errors.New("the keys of the issuer cannot be read")
	// ErrSignature means that no key of its issuer signed the token.
	ErrSignature = errors.New("no key of the issuer has signed the token")
)

// Keys caches the keys that an issuer publishes. It reads them for a token that
// no cached key has signed, and every hour, so that withdrawn keys expire. One
// read runs at a time, without a lock. A token of a cached key does not wait for
// a failing issuer.
type Keys struct {
	url    string
	client *http.Client
	now    func() time.Time

	mu       sync.Mutex // held to look at what follows, and for nothing that takes time
	keys     []jose.JSONWebKey
	read     time.Time     // when keys were read; zero is never
	next     time.Time     // before which they are not read again
	failures int           // to read them since
	reading  chan struct{} // closed when the reading that runs has ended; nil for none
}

// New returns the keys at a URL that [Check] has nothing against. They are read
// when the first token is to be verified.
func New(url string, transport http.RoundTripper, now func() time.Time) *Keys {
	return &Keys{url: url, now: now, client: &http.Client{
		Timeout:       timeout,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		Transport:     transport,
	}}
}

// Verify returns the payload of a token that one of the keys has signed. The
// algorithms were checked when the token was parsed. The error is ErrSignature
// or ErrUnavailable.
func (k *Keys) Verify(ctx context.Context, token *jose.JSONWebSignature) ([]byte, error) {
	if k.old(renewal) {
		if reading, begun := k.begin(); begun && !k.failing() {
			wait(ctx, reading)
		}
	}
	if payload, ok := k.verify(token); ok {
		return payload, nil
	}
	if reading, _ := k.begin(); reading != nil {
		wait(ctx, reading)
	}
	if payload, ok := k.verify(token); ok {
		return payload, nil
	}
	if ctx.Err() != nil || k.failing() || k.old(maxAge) {
		return nil, ErrUnavailable
	}
	return nil, ErrSignature
}

func wait(ctx context.Context, reading <-chan struct{}) {
	select {
	case <-reading:
	case <-ctx.Done():
	}
}

// old reports whether the keys were read so long ago, or never.
func (k *Keys) old(age time.Duration) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.read.IsZero() || k.now().Sub(k.read) >= age
}

// failing reports whether the last read of the keys failed. A failed verification
// is then not the fault of the bearer.
func (k *Keys) failing() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.failures > 0
}

// verify looks for the key that has signed a token, of keys that are not too old.
func (k *Keys) verify(token *jose.JSONWebSignature) ([]byte, bool) {
	if k.old(maxAge) || len(token.Signatures) != 1 {
		return nil, false
	}
	k.mu.Lock()
	keys := k.keys
	k.mu.Unlock()
	header := token.Signatures[0].Protected
	for _, key := range keys {
		if header.KeyID != "" && key.KeyID != header.KeyID || key.Algorithm != "" && key.Algorithm != header.Algorithm {
			continue
		}
		if payload, err := token.Verify(key); err == nil {
			return payload, true
		}
	}
	return nil, false
}

// begin returns the reading that runs or, if it is time for one, begins it. It
// returns nil if keys were read, or could not be, a moment ago: an unknown key in
// a token is no reason to ask the issuer more often.
func (k *Keys) begin() (reading <-chan struct{}, begun bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	switch {
	case k.reading != nil:
		return k.reading, false
	case k.now().Before(k.next):
		return nil, false
	}
	k.reading = make(chan struct{})
	go k.renew(k.reading)
	return k.reading, true
}

// renew reads the keys. It retains the existing keys if the read fails.
func (k *Keys) renew(done chan<- struct{}) {
	keys, err := k.fetch()
	k.mu.Lock()
	defer k.mu.Unlock()
	defer close(done)
	now := k.now()
	k.reading = nil
	if err != nil {
		k.failures++
		k.next = now.Add(min(pause, retry<<min(k.failures-1, 10)))
		return
	}
	k.keys, k.read, k.failures, k.next = keys, now, 0, now.Add(pause)
}

// fetch reads the document. It returns an error unless the document is a key set.
func (k *Keys) fetch() ([]jose.JSONWebKey, error) {
	request, err := http.NewRequest(http.MethodGet, k.url, nil)
	if err != nil {
		return nil, err
	}
	request.Header.Set("Cache-Control", "no-cache")
	response, err := k.client.Do(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(http.MaxBytesReader(nil, response.Body, maxBytes))
	if err != nil {
		return nil, err
	}
	var set struct {
		Keys []jsontext.Value `json:"keys"`
	}
	if err := json.Unmarshal(body, &set); err != nil || set.Keys == nil || response.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("GET %s: no set of keys: %s", k.url, response.Status)
	}
	return usable(set.Keys), nil
}
