package console

import (
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"slices"
)

// headerPoll is the header of requests by which open pages ask whether they are up to date.
const headerPoll = "Console-Poll"

// polled are the pages that ask, while somebody can see them.
var polled = []string{"GET /{$}", "GET /requests", "GET /requests/{task}"}

// isPoll reports whether an open page asks whether it is up to date. The answer is 304 if it is, and otherwise the
// page as it is now, of which the open page takes some parts. It does not prolong the session.
func isPoll(r *http.Request) bool {
	return r.Header.Get(headerPoll) != "" && slices.Contains(polled, r.Pattern)
}

// findSession returns the session of the visit.
func (v *visit) findSession() (found session, ok bool) {
	if v.polls {
		return v.sessions.look(v.id)
	}
	return v.sessions.find(v.id)
}

// keepUp lets the page ask at a path whether it is up to date. The tag is that of what it shows.
func (v *visit) keepUp(path, tag string) { v.watch, v.tag = path, tag }

// known returns the tag of what an open page shows, or "".
func (v *visit) known() string {
	if !v.polls {
		return ""
	}
	return v.r.Header.Get(headerKnown)
}

const (
	headerTag   = "Etag" // the canonical spelling of net/http
	headerKnown = "If-None-Match"
)

// isCurrent answers 304 if the open page that asks shows the state with the tag of the visit.
func (v *visit) isCurrent() bool {
	if v.tag == "" || v.known() != v.tag {
		return false
	}
	v.w.WriteHeader(http.StatusNotModified)
	return true
}

// tagOf returns an entity tag of texts.
func tagOf(texts ...[]byte) string {
	digest := sha256.New()
	for _, text := range texts {
		one := sha256.Sum256(text)
		digest.Write(one[:])
	}
	return `W/"` + hex.EncodeToString(digest.Sum(nil)[:8]) + `"`
}
