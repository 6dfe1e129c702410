package pdp

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"
	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// Limits of an issuer's keys.
const (
	maxKeySet  = 1 << 20
	keyTimeout = 5 * time.Second
	keyPause   = 10 * time.Second // between two looks at them
	keyRenewal = time.Hour        // after which they are read again
	keyAge     = 24 * time.Hour   // for how long they are good if they cannot be
)

// A keySet has the keys that an issuer publishes. They are read again when a
// token names one that is not known and, so that one which the issuer has
// withdrawn is good no longer, every hour.
type keySet struct {
	url       string
	transport *keyTransport
	now       func() time.Time

	mu      sync.Mutex
	current oidc.KeySet
	read    time.Time // when current began
	next    time.Time // before which it is not read again because of its age
}

func newKeySet(url string, transport http.RoundTripper, now func() time.Time) *keySet {
	k := &keySet{url: url, transport: &keyTransport{next: transport, now: now}, now: now}
	k.current, k.read = k.remote(), now()
	return k
}

// remote is the keys as they are when they are needed first.
func (k *keySet) remote() oidc.KeySet {
	return oidc.NewRemoteKeySet(oidc.ClientContext(context.Background(), newKeyClient(k.transport)), k.url)
}

// VerifySignature returns the payload of a token that one of the keys has
// signed.
func (k *keySet) VerifySignature(ctx context.Context, token string) ([]byte, error) {
	keys, due, old := k.take()
	if due {
		keys := k.remote()
		payload, err := keys.VerifySignature(ctx, token)
		if !k.transport.failing() { // whatever the token is worth
			k.put(keys)
			return payload, err
		}
	}
	if old {
		return nil, errIssuer
	}
	return keys.VerifySignature(ctx, token)
}

// take returns the keys, whether the caller has to read them again, and whether
// they are too old.
func (k *keySet) take() (keys oidc.KeySet, due, old bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	now := k.now()
	if due = now.Sub(k.read) >= keyRenewal && !now.Before(k.next); due {
		k.next = now.Add(keyPause)
	}
	return k.current, due, now.Sub(k.read) >= keyAge
}

func (k *keySet) put(keys oidc.KeySet) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.current, k.read = keys, k.now()
}

// errTooSoon is a look at an issuer's keys right after another: an unknown key
// in a token is no reason to ask more often.
var errTooSoon = errors.New("the keys have just been read")

// newKeyClient returns a client that reads an issuer's keys: a small document,
// soon, from where it is said to be, and not too often.
func newKeyClient(t *keyTransport) *http.Client {
	return &http.Client{
		Timeout:       keyTimeout,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		Transport:     t,
	}
}

// A keyTransport reads one issuer's keys.
type keyTransport struct {
	next http.RoundTripper
	now  func() time.Time

	mu     sync.Mutex
	pause  time.Time // before which they are not read again
	failed bool      // when they were last read
}

// failing reports whether the keys could not be read.
func (t *keyTransport) failing() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.failed
}

// RoundTrip reads the keys. What is no set of keys is a failure.
func (t *keyTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.now().Before(t.pause) {
		return nil, errTooSoon
	}
	t.failed = true
	response, err := t.next.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(http.MaxBytesReader(nil, response.Body, maxKeySet))
	if err != nil {
		return nil, err
	}
	var set struct {
		Keys []jsontext.Value `json:"keys"`
	}
	if err := json.Unmarshal(body, &set); err != nil || set.Keys == nil || response.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("GET %s: no set of keys: %s", r.URL, response.Status)
	}
	t.failed, t.pause = false, t.now().Add(keyPause)
	response.Body = io.NopCloser(bytes.NewReader(body))
	return response, nil
}
