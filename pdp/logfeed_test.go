package pdp_test

import (
	"bufio"
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/policy-service/policy-service/evaluation/decisionlog"
	"github.com/policy-service/policy-service/pdp"
	"github.com/policy-service/policy-service/schemas/authzen"
)

// A listener reads a stream of entries.
type listener struct {
	*testing.T
	lines    *bufio.Scanner
	lastID   string
	response *http.Response
}

// listen opens a stream. The test ends it.
func listen(t *testing.T, ctx context.Context, url, key, lastID string) *listener {
	t.Helper()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	if key != "" {
		request.Header.Set("Authorization", "Bearer "+key)
	}
	if lastID != "" {
		request.Header.Set("Last-Event-ID", lastID)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { response.Body.Close() })
	lines := bufio.NewScanner(response.Body)
	lines.Buffer(nil, 1<<20)
	return &listener{T: t, lines: lines, response: response}
}

// next returns the next message, or nil at the end of the stream.
func (l *listener) next() *decisionlog.Activity {
	l.Helper()
	for l.lines.Scan() {
		if id, found := strings.CutPrefix(l.lines.Text(), "id: "); found {
			l.lastID = id
		}
		if data, found := strings.CutPrefix(l.lines.Text(), "data: "); found {
			a := new(decisionlog.Activity)
			if err := json.Unmarshal([]byte(data), a); err != nil {
				l.Fatalf("%s: %v", data, err)
			}
			return a
		}
	}
	return nil
}

// until reads messages until the stream has an entry with the index. Each message begins where the one before it
// ended.
func (l *listener) until(index int64) (all []decisionlog.ActivityItem) {
	l.Helper()
	for last := int64(-1); ; {
		a := l.next()
		if a == nil {
			l.Fatal("the stream ended")
		}
		if last >= 0 && a.From != last {
			l.Errorf("a message from %d comes after one until %d", a.From, last)
		}
		last = a.Until
		if all = append(all, a.Entries...); a.Until > index {
			return all
		}
	}
}

// A stream has new entries soon after they were recorded, goes on where it was left, and ends with the service.
func TestLogStream(t *testing.T) {
	s := start(t, pdp.Config{Policies: policySet(t, "todo")})
	url := s.admin + pdp.PathLogStream
	l := listen(t, t.Context(), url, "", "")
	if got := l.response.Header.Get("Content-Type"); got != "text/event-stream" {
		t.Errorf("Content-Type %q", got)
	}
	if first := l.next(); first.From != 0 || len(first.Entries) != 1 || first.Entries[0].Kind != decisionlog.KindReload {
		t.Errorf("the first message is %+v", first)
	}
	for n := range 120 {
		post(t, http.DefaultClient, s.main+authzen.PathEvaluation, fmt.Sprintf(`{"subject":{"type":"user","id":"u%d"},"action":{"name":"can_read_todos"},"resource":{"type":"todo","id":"1"}}`, n))
	}
	seen := l.until(120)
	if last := seen[len(seen)-1]; last.Index != 120 || last.Who != "u119" || last.What != "can_read_todos" || last.On != "1" || last.Decision == nil {
		t.Errorf("the last entry is %+v", last)
	}
	again := listen(t, t.Context(), url, "", "21").next()
	if again.From != 21 || again.Until != 121 || again.Allowed+again.Denied != 100 || again.Omitted != 50 || len(again.Entries) != 50 {
		t.Errorf("a stream that goes on: %+v", again)
	}
	if ahead := listen(t, t.Context(), url, "", "5000").next(); ahead.From != 121 || len(ahead.Entries) != 0 {
		t.Errorf("a stream from the future: %+v", ahead)
	}
	for _, query := range []string{"?tenants=acme", "?tenant=a&tenant=b"} {
		if response, body := get(t, url+query); response.StatusCode != http.StatusBadRequest {
			t.Errorf("%s: %s %s", query, response.Status, body)
		}
	}
	began := time.Now()
	s.stop(t)
	for l.next() != nil {
	}
	if took := time.Since(began); took > 10*time.Second {
		t.Errorf("the service waited %s for the stream", took)
	}
}

// Streams that join while entries are recorded have each entry once.
func TestLogStreamsHaveEachEntryOnce(t *testing.T) {
	const decisions = 300
	s := start(t, pdp.Config{Policies: policySet(t, "todo")})
	done := make(chan struct{})
	go func() {
		defer close(done)
		for n := range decisions {
			post(t, http.DefaultClient, s.main+authzen.PathEvaluation, fmt.Sprintf(`{"subject":{"type":"user","id":"u%d"},"action":{"name":"can_read_todos"},"resource":{"type":"todo","id":"1"}}`, n))
		}
	}()
	for range 20 {
		l := listen(t, t.Context(), s.admin+pdp.PathLogStream, "", "0")
		counted, last := int64(0), int64(0)
		for last < decisions/4 {
			a := l.next()
			if a.From != last {
				t.Fatalf("a message from %d comes after one until %d", a.From, last)
			}
			counted, last = counted+a.Allowed+a.Denied, a.Until
		}
		if counted != last-1 { // but for the entry of the policies
			t.Errorf("%d decisions in %d entries", counted, last)
		}
	}
	<-done
}

// A stream has the entries of the caller's tenants, and counts no others.
func TestLogStreamOfTenants(t *testing.T) {
	d := newDesks(t)
	for _, tt := range []struct {
		tenants, query string
		want           []string
	}{
		{"all", "", []string{"", "acme", "globex"}}, {"acme", "", []string{"acme"}}, {"both", "?tenant=globex", []string{"globex"}},
		{"acme", "?tenant=globex", nil}, {"all", "?tenant=nobody", nil},
	} {
		first := listen(t, t.Context(), d.admin+pdp.PathLogStream+tt.query, d.key(tt.tenants, pdp.ScopeAudit), "0").next()
		var got []string
		for _, e := range first.Entries {
			got = append(got, e.Tenant)
		}
		slices.Sort(got)
		if got = slices.Compact(got); !slices.Equal(got, tt.want) {
			t.Errorf("%s%s: entries of %q, want %q", tt.tenants, tt.query, got, tt.want)
		}
		if tt.want == nil && (first.Allowed+first.Denied+first.Omitted > 0) {
			t.Errorf("%s%s: counts %+v", tt.tenants, tt.query, first)
		}
	}
}

// A stream for a tenant says nothing while others are active, and no index of theirs.
func TestLogStreamIsQuietAboutOthers(t *testing.T) {
	d := newDesks(t)
	key := d.key("acme", pdp.ScopeAudit)
	l := listen(t, t.Context(), d.admin+pdp.PathLogStream, key, "0")
	first := l.next()
	if own := first.Entries; first.Until != own[len(own)-1].Index+1 {
		t.Errorf("the first message ends at %d, after the last own entry %d", first.Until, own[len(own)-1].Index)
	}
	all := listen(t, t.Context(), d.admin+pdp.PathLogStream, d.key("all", pdp.ScopeAudit), "")
	all.next()
	for range 3 {
		d.submit("globex")
		_, body := d.ask("GET", pdp.PathLogQuery+"?tenant=globex&limit=1", d.key("all", pdp.ScopeAudit), "")
		all.until(records(t, body)[0].Index)
	}
	d.submit("acme")
	if second := l.next(); second.From != first.Until || len(second.Entries) == 0 || second.Entries[0].Tenant != "acme" {
		t.Errorf("after what others did comes %+v", second)
	}
	quiet := listen(t, t.Context(), d.admin+pdp.PathLogStream+"?tenant=nobody", d.key("all", pdp.ScopeAudit), "5").next()
	if quiet.From != 5 || quiet.Until != 5 {
		t.Errorf("of a tenant without entries: %+v", quiet)
	}
}

// One caller has a quarter of the streams: the others are for everybody else.
func TestLogStreamsAreShared(t *testing.T) {
	d := newDesks(t)
	for n := range 50 {
		if l := listen(t, t.Context(), d.admin+pdp.PathLogStream, d.key("acme", pdp.ScopeAudit), ""); l.response.StatusCode != http.StatusOK {
			t.Fatalf("stream %d: %s", n, l.response.Status)
		}
	}
	if l := listen(t, t.Context(), d.admin+pdp.PathLogStream, d.key("acme", pdp.ScopeAudit), ""); l.response.StatusCode != http.StatusServiceUnavailable {
		t.Errorf("one more of the same caller: %s", l.response.Status)
	}
	if l := listen(t, t.Context(), d.admin+pdp.PathLogStream, d.key("all", pdp.ScopeAudit), ""); l.response.StatusCode != http.StatusOK {
		t.Errorf("of another caller: %s", l.response.Status)
	}
}

// A client that does not read costs others nothing, and too many streams are refused.
func TestLogStreamsAreLimited(t *testing.T) {
	s := start(t, pdp.Config{Policies: policySet(t, "todo")})
	ctx, cancel := context.WithCancel(t.Context())
	for n := range 200 {
		if l := listen(t, ctx, s.admin+pdp.PathLogStream, "", ""); l.response.StatusCode != http.StatusOK {
			t.Fatalf("stream %d: %s", n, l.response.Status)
		}
	}
	if l := listen(t, ctx, s.admin+pdp.PathLogStream, "", ""); l.response.StatusCode != http.StatusServiceUnavailable {
		t.Errorf("one more: %s", l.response.Status)
	}
	cancel()
	for deadline := time.Now().Add(20 * time.Second); ; {
		if l := listen(t, t.Context(), s.admin+pdp.PathLogStream, "", ""); l.response.StatusCode == http.StatusOK {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("streams that ended still count")
		}
	}
}
