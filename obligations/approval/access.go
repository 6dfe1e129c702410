package approval

import (
	"fmt"
	"maps"
	"net/url"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/policy-service/policy-service/schemas/authzen"
	"github.com/policy-service/policy-service/schemas/jsonobject"
)

// merged returns the members of all, overridden by the item's own members.
func merged(all, own jsontext.Value) jsontext.Value {
	values, errAll := jsonobject.Parse(all)
	over, errOwn := jsonobject.Parse(own)
	if errAll != nil || errOwn != nil {
		return own
	}
	maps.Copy(values, over)
	joined, err := values.Encode()
	if err != nil { // the value was parsed before
		panic(err)
	}
	return joined
}

// requestedUntil returns the end of the approval that the requester asks for, or the zero time.
func requestedUntil(access jsontext.Value, now time.Time) (time.Time, error) {
	var wanted struct {
		Until *time.Time `json:"requested_until"`
	}
	if access == nil {
		return time.Time{}, nil
	}
	if err := json.Unmarshal(access, &wanted); err != nil {
		return time.Time{}, authzen.Invalid("/requested_access/requested_until", "must be a time (RFC 3339)")
	}
	if wanted.Until == nil {
		return time.Time{}, nil
	}
	if !wanted.Until.After(now) {
		return time.Time{}, authzen.Invalid("/requested_access/requested_until", "has passed")
	}
	return wanted.Until.UTC(), nil
}

// checkCallback refuses a callback endpoint that the configuration does not allow.
func (s *Service) checkCallback(c *authzen.Callback) error {
	if c == nil {
		return nil
	}
	if len(s.config.CallbackAllowed) == 0 {
		return fmt.Errorf("%w: /callback: nobody is called back", ErrUnsupported)
	}
	u, err := url.Parse(c.Endpoint)
	if err != nil || u.User != nil || u.Fragment != "" {
		return ErrCallback
	}
	for _, prefix := range s.config.CallbackAllowed {
		if under(u, prefix) {
			return nil
		}
	}
	return ErrCallback
}

// under reports whether a URL is the allowed one or below it. It compares paths literally and
// refuses dot segments.
func under(u *url.URL, allowed string) bool {
	a, err := url.Parse(allowed)
	if err != nil || u.Scheme != a.Scheme || u.Host != a.Host || strings.Contains(u.EscapedPath(), "..") || strings.Contains(u.EscapedPath(), "%") {
		return false
	}
	base := strings.TrimSuffix(a.EscapedPath(), "/")
	return u.EscapedPath() == base || strings.HasPrefix(u.EscapedPath(), base+"/")
}
