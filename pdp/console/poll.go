package console

import (
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
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

// patternStream is the route of the stream, to which an open page connects again by itself.
const patternStream = "GET /live/stream"

// findSession returns the session of the visit. What an open page asks by itself does not prolong it.
func (v *visit) findSession() (found session, ok bool) {
	if v.polls || v.r.Pattern == patternStream {
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
	_ = v.unchanged()
	return true
}

// unchanged says that the open page that asks is up to date.
func (v *visit) unchanged() error {
	v.w.WriteHeader(http.StatusNotModified)
	return nil
}

// recentTime is how old an open page may be that every decision of the service changes.
const recentTime = 10 * time.Second

// A seen is what an open page shows of which something changes all the time, as its entity tag has it: the digests of
// what it shows at once when it changes and of all of it, and when it was made. Only the page itself depends on it.
type seen struct {
	urgent, whole string
	made          time.Time
}

// seenTag returns the entity tag of a page that is made now.
func seenTag(urgent, whole string, now time.Time) string {
	return fmt.Sprintf(`W/"%s.%s.%d"`, digest(urgent), digest(whole), now.Unix())
}

// seen returns what the open page that asks shows. It is zero for others.
func (v *visit) seen() (s seen) {
	parts := strings.Split(strings.Trim(strings.TrimPrefix(v.known(), "W/"), `"`), ".")
	if len(parts) != 3 {
		return s
	}
	made, err := strconv.ParseInt(parts[2], 10, 64)
	if err != nil {
		return s
	}
	return seen{parts[0], parts[1], time.Unix(made, 0)}
}

// shows reports whether a page shows what is urgent, and is recent.
func (s seen) shows(urgent string, now time.Time) bool {
	age := now.Sub(s.made)
	return s.urgent == digest(urgent) && age >= 0 && age < recentTime
}
