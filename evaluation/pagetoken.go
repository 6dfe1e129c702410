package evaluation

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/policy-service/policy-service/evaluation/snapshot"
	"github.com/policy-service/policy-service/schemas/authzen"
)

// A cursor is the start of a page of results and its limit.
type cursor struct {
	From  int32 // position of the first candidate to decide
	Limit int32 // as requested; noLimit if the request has none
}

const noLimit = -1

// A pageToken is a cursor with its search and the revision that decides it. Its text is opaque to PEPs.
// It is signed, because a position in one search has no meaning in another.
type pageToken struct {
	Revision [8]byte
	Search   [16]byte
	cursor
}

const macSize = 16

// seal returns the token's signed text.
func (t pageToken) seal(key []byte) string {
	body, err := binary.Append(nil, binary.BigEndian, t)
	if err != nil { // it has a fixed size
		panic(err)
	}
	return base64.RawURLEncoding.EncodeToString(append(body, mac(key, body)...))
}

func mac(key, body []byte) []byte {
	h := hmac.New(sha256.New, key)
	h.Write(body)
	return h.Sum(nil)[:macSize]
}

// open parses a token's text. It returns false unless key signed it.
func (t *pageToken) open(key []byte, text string) (ok bool) {
	sealed, err := base64.RawURLEncoding.Strict().DecodeString(text)
	if err != nil || len(sealed) != binary.Size(t)+macSize {
		return false
	}
	body := sealed[:len(sealed)-macSize]
	if !hmac.Equal(mac(key, body), sealed[len(body):]) {
		return false
	}
	_, err = binary.Decode(body, binary.BigEndian, t)
	return err == nil
}

// newPageToken returns the token of a search's first page.
func newPageToken(q *snapshot.SearchQuery, page *authzen.PageRequest, tenant, revision string) (pageToken, error) {
	asked, err := json.Marshal(struct {
		Tenant, Open string
		Request      authzen.EvaluationRequest
		Properties   jsontext.Value
	}{tenant, q.For, q.Request, page.Properties})
	if err != nil {
		return pageToken{}, err
	}
	// The same search may have its members in another order.
	if err := (*jsontext.Value)(&asked).Canonicalize(); err != nil {
		return pageToken{}, err
	}
	search, compiled := sha256.Sum256(asked), sha256.Sum256([]byte(revision))
	t := pageToken{cursor: cursor{Limit: noLimit}}
	copy(t.Search[:], search[:])
	copy(t.Revision[:], compiled[:])
	if page.Limit != nil {
		t.Limit = int32(*page.Limit)
	}
	return t, nil
}

// resume moves t, the token of a search's first page, to the requested page. A limit that the request
// does not repeat stays in effect (AuthZEN 1.0, "Paginated Requests").
func (t *pageToken) resume(key []byte, page *authzen.PageRequest) error {
	if page.Token == "" {
		return nil
	}
	var sent pageToken
	switch {
	case !sent.open(key, page.Token):
		return authzen.Invalid("/page/token", "is not one that this service gave: begin again without it")
	case !bytes.Equal(sent.Search[:], t.Search[:]):
		return authzen.Invalid("/page/token", "belongs to another search: repeat the request that it answered, unchanged")
	case sent.Revision != t.Revision:
		return authzen.Invalid("/page/token", "is older than the policies: begin again without it")
	case page.Limit != nil && t.Limit != sent.Limit:
		return authzen.Invalid("/page/limit", "must be that of the page before, or absent")
	}
	t.cursor = sent.cursor
	return nil
}
