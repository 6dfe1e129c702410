package jwks

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
	maxBytes = 1 << 20
	timeout  = 5 * time.Second
	pause    = 10 * time.Second // between two looks at them
	renewal  = time.Hour        // after which they are read again
	maxAge   = 24 * time.Hour   // for how long they are good if they cannot be
)

// ErrUnavailable is an issuer whose keys cannot be had: nobody can be told from
// anybody else.
var ErrUnavailable = errors.New("the keys of the issuer cannot be read")

// Keys has the keys that an issuer publishes. They are read again when a
// token names one that is not known and, so that one which the issuer has
// withdrawn is good no longer, every hour.
type Keys struct {
	url       string
	transport *transport
	now       func() time.Time

	mu      sync.Mutex
	current oidc.KeySet
	read    time.Time // when current began
	next    time.Time // before which it is not read again because of its age
}

// New returns the keys at a URL that [Check] has nothing against. They are read
// when the first token is to be verified.
func New(url string, next http.RoundTripper, now func() time.Time) *Keys {
	k := &Keys{url: url, transport: &transport{next: next, now: now}, now: now}
	k.current, k.read = k.remote(), now()
	return k
}

// remote is the keys as they are when they are needed first.
func (k *Keys) remote() oidc.KeySet {
	return oidc.NewRemoteKeySet(oidc.ClientContext(context.Background(), newClient(k.transport)), k.url)
}

// VerifySignature returns the payload of a token that one of the keys has
// signed.
func (k *Keys) VerifySignature(ctx context.Context, token string) ([]byte, error) {
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
		return nil, ErrUnavailable
	}
	return keys.VerifySignature(ctx, token)
}

// take returns the keys, whether the caller has to read them again, and whether
// they are too old.
func (k *Keys) take() (keys oidc.KeySet, due, old bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	now := k.now()
	if due = now.Sub(k.read) >= renewal && !now.Before(k.next); due {
		k.next = now.Add(pause)
	}
	return k.current, due, now.Sub(k.read) >= maxAge
}

func (k *Keys) put(keys oidc.KeySet) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.current, k.read = keys, k.now()
}

// errTooSoon is a look at an issuer's keys right after another: an unknown key
// in a token is no reason to ask more often.
var errTooSoon = errors.New("the keys have just been read")

// newClient returns a client that reads an issuer's keys: a small document,
// soon, from where it is said to be, and not too often.
func newClient(t *transport) *http.Client {
	return &http.Client{
		Timeout:       timeout,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		Transport:     t,
	}
}

// A transport reads one issuer's keys.
type transport struct {
	next http.RoundTripper
	now  func() time.Time

	mu     sync.Mutex
	until  time.Time // before which they are not read again
	failed bool      // when they were last read
}

// Failing reports whether the keys could not be read: then no token that does
// not verify is the fault of its bearer.
func (k *Keys) Failing() bool { return k.transport.failing() }

// failing reports whether the keys could not be read.
func (t *transport) failing() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.failed
}

// RoundTrip reads the keys. What is no set of keys is a failure.
func (t *transport) RoundTrip(r *http.Request) (*http.Response, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.now().Before(t.until) {
		return nil, errTooSoon
	}
	t.failed = true
	response, err := t.next.RoundTrip(r)
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
		return nil, fmt.Errorf("GET %s: no set of keys: %s", r.URL, response.Status)
	}
	t.failed, t.until = false, t.now().Add(pause)
	response.Body = io.NopCloser(bytes.NewReader(body))
	return response, nil
}
