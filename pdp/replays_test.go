package pdp_test

import (
	"archive/zip"
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/fstest"
	"testing/synctest"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/policy-service/policy-service/evaluation/decisionlog"
	"github.com/policy-service/policy-service/evaluation/replay"
	"github.com/policy-service/policy-service/pdp"
	"github.com/policy-service/policy-service/schemas/authzen"
)

// zipped returns a zip archive of files.
func zipped(t testing.TB, files map[string]string) []byte {
	t.Helper()
	var out bytes.Buffer
	w := zip.NewWriter(&out)
	for _, name := range slices.Sorted(maps.Keys(files)) {
		f, err := w.Create(name)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.WriteString(f, files[name])
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// upload posts a zip archive to the admin listener.
func (s *service) upload(t testing.TB, path, key string, body io.Reader) (int, []byte) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), "POST", s.admin+path, body)
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Content-Type", "application/zip")
	request.Header.Set("Authorization", "Bearer "+key)
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	return response.StatusCode, []byte(readAll(t, response.Body))
}

func (d *desks) upload(path, key string, body []byte) (int, []byte) {
	return d.service.upload(d.t, path, key, bytes.NewReader(body))
}

// replayed begins a replay and returns it at its end.
func (s *service) replayed(t *testing.T, key, query string, body []byte) (job pdp.ReplayJob) {
	t.Helper()
	code, answer := s.upload(t, pdp.PathReplays+query, key, bytes.NewReader(body))
	if err := json.Unmarshal(answer, &job); err != nil || code != 202 {
		t.Fatalf("%d %s: %v", code, answer, err)
	}
	for job.State == "running" {
		next := pdp.ReplayJob{}
		if code := askAs(t, key, "GET", s.admin+pdp.PathReplays+"/"+job.ID, "", &next); code != 200 {
			t.Fatal(code)
		}
		job = next
	}
	return job
}

// A replay of an uploaded store, or of the shadow, reports what it would have changed, as log replay
// does, and its begin is in the log.
func TestReplays(t *testing.T) {
	s := start(t, pdp.Config{PolicyDir: storeDir(t, map[string]string{"a.cedar": aliceMayRead}), ShadowDir: storeDir(t, map[string]string{"a.cedar": allMayRead})})
	for _, who := range []string{"alice", "bob", "bob"} {
		post(t, http.DefaultClient, s.main+authzen.PathEvaluation, strings.Replace(aliceReads, "alice", who, 1))
	}
	stores := map[string][]byte{
		"":              zipped(t, map[string]string{"a.cedar": allMayRead}),
		"?tenant=":      zipped(t, map[string]string{"policies/": "", "policies/a.cedar": allMayRead}),
		"?store=shadow": nil,
	}
	for query, body := range stores {
		job := s.replayed(t, "", query, body)
		if job.State != "done" || job.Report.Decisions != 3 || len(job.Report.Flips) != 1 || job.Percent != 100 || job.Done != job.Of {
			t.Fatalf("%q: %+v", query, job)
		}
		if f := job.Report.Flips[0]; f.Effect != replay.EffectAllows || f.Count != 2 || f.Subject != "user::bob" {
			t.Errorf("%q: %+v", query, f)
		}
	}
	if job := s.replayed(t, "", "?since="+time.Now().Add(time.Hour).UTC().Format(time.RFC3339), stores[""]); job.Report.Decisions != 0 {
		t.Errorf("of the future: %+v", job.Report)
	}
	job := s.replayed(t, "", "", zipped(t, map[string]string{"a.cedar": "permit("}))
	if job.State != "failed" || len(job.Faults) == 0 || job.Faults[0].File != "a.cedar" || job.Report != nil {
		t.Errorf("%+v", job)
	}
	var list pdp.ReplayJobs
	askAs(t, "", "GET", s.admin+pdp.PathReplays, "", &list)
	if len(list.Replays) != 5 || list.Replays[0].ID != job.ID || list.Replays[1].Report != nil {
		t.Errorf("%+v", list)
	}
	if _, body, err := send(t.Context(), http.DefaultClient, "GET", s.admin+pdp.PathLogQuery+"?kind=admin", ""); err != nil || strings.Count(body, `"action":"replay"`) != 5 {
		t.Errorf("%s %v", body, err)
	}
}

// replayKeys are keys of operators, each of one tenant, and of one of all tenants.
func replayKeys(tenants ...string) (auth pdp.Auth) {
	add := func(id string, of []string) {
		auth.APIKeys = append(auth.APIKeys, pdp.APIKey{ID: id, SHA256: digest("k-" + id), Grant: pdp.Grant{Tenants: of, Scopes: []pdp.Scope{pdp.ScopeAdmin}}})
	}
	for _, tenant := range tenants {
		add(tenant, []string{tenant})
	}
	add("all", nil)
	return auth
}

// beginUpload begins to upload a policy store, and returns what ends the upload with the status of the answer.
func (s *service) beginUpload(t *testing.T, key string) (end func() int) {
	t.Helper()
	body := zipped(t, map[string]string{"a.cedar": allMayRead})
	read, write := io.Pipe()
	status := make(chan int)
	go func() {
		code, _ := s.upload(t, pdp.PathReplays, key, read)
		status <- code
	}()
	_, _ = write.Write(body[:1])
	return func() int {
		_, _ = write.Write(body[1:])
		write.Close()
		return <-status
	}
}

// refused repeats an upload that is no archive until it has another status than 400, and returns the answer.
func (s *service) refused(t *testing.T, key string) (code int, body string) {
	t.Helper()
	for {
		code, answer := s.upload(t, pdp.PathReplays, key, strings.NewReader("no archive"))
		if code != 400 {
			return code, string(answer)
		}
	}
}

// One replay of a tenant runs at a time, from the first byte of its policy store on. Another tenant's
// neither stops it nor shows.
func TestOneReplayOfATenantAtATime(t *testing.T) {
	s := start(t, pdp.Config{Auth: replayKeys("acme", "globex")})
	end := s.beginUpload(t, "k-acme")
	if code, body := s.refused(t, "k-acme"); code != 409 {
		t.Errorf("a second of the same tenant is %d %s", code, body)
	}
	for _, key := range []string{"k-globex", "k-all"} {
		if job := s.replayed(t, key, "", zipped(t, map[string]string{"a.cedar": allMayRead})); job.State != "done" {
			t.Errorf("%s: %+v", key, job)
		}
	}
	if code := end(); code != 202 {
		t.Errorf("the first is %d", code)
	}
}

// All tenants together run a few replays. Beyond them, everybody gets the same answer.
func TestReplaysOfAllTenants(t *testing.T) {
	s := start(t, pdp.Config{Auth: replayKeys("a", "b", "c", "d", "e", "f")})
	var ends []func() int
	for _, key := range []string{"k-a", "k-b", "k-c", "k-d"} {
		ends = append(ends, s.beginUpload(t, key))
		if code, body := s.refused(t, key); code != 409 {
			t.Errorf("%s: %d %s", key, code, body)
		}
	}
	answers := map[string]bool{}
	for _, key := range []string{"k-e", "k-f", "k-all"} {
		code, body := s.refused(t, key)
		answers[fmt.Sprint(code, body)] = true
		if code != 503 || !strings.Contains(body, "the service is busy") {
			t.Errorf("%s: %d %s", key, code, body)
		}
	}
	if len(answers) != 1 {
		t.Errorf("the answers differ: %v", answers)
	}
	for _, end := range ends {
		if code := end(); code != 202 {
			t.Errorf("one of the first is %d", code)
		}
	}
}

// A tenant's replays do not push those of others out of what is kept.
func TestReplaysAreKeptByTenant(t *testing.T) {
	s := start(t, pdp.Config{Auth: replayKeys("acme", "globex")})
	body := zipped(t, map[string]string{"a.cedar": allMayRead})
	first := s.replayed(t, "k-acme", "", body)
	for range 9 {
		s.replayed(t, "k-globex", "", body)
	}
	for key, want := range map[string]int{"k-acme": 1, "k-globex": 8, "k-all": 9} {
		var list pdp.ReplayJobs
		askAs(t, key, "GET", s.admin+pdp.PathReplays, "", &list)
		if len(list.Replays) != want || list.Replays[len(list.Replays)-1].ID != first.ID && key != "k-globex" {
			t.Errorf("%s: %+v", key, list)
		}
	}
}

// A replay that is cancelled, and one that runs when the service ends, stops.
func TestReplaysEnd(t *testing.T) {
	for _, how := range []string{"cancelled", "the service ends"} {
		t.Run(how, func(t *testing.T) {
			log, err := decisionlog.Open(t.TempDir(), decisionlog.Config{})
			if err != nil {
				t.Fatal(err)
			}
			defer log.Close()
			working := make(chan bool, 1)
			handler, drain, err := pdp.NewReplayRoutes(log, fstest.MapFS{"a.cedar": {Data: []byte(allMayRead)}}, func(ctx context.Context) error {
				select {
				case working <- true:
				default:
				}
				<-ctx.Done()
				return ctx.Err()
			})
			if err != nil {
				t.Fatal(err)
			}
			ask := func(method, path string, body []byte) (code int, job pdp.ReplayJob) {
				r := httptest.NewRequest(method, path, bytes.NewReader(body))
				r.Header.Set("Content-Type", "application/zip")
				w := httptest.NewRecorder()
				handler.ServeHTTP(w, r)
				_ = json.Unmarshal(w.Body.Bytes(), &job)
				return w.Code, job
			}
			_, job := ask("POST", pdp.PathReplays, zipped(t, map[string]string{"a.cedar": allMayRead}))
			<-working
			path := pdp.PathReplays + "/" + job.ID
			if _, now := ask("GET", path, nil); now.State != "running" {
				t.Fatalf("%+v", now)
			}
			ctx, end := context.WithCancel(t.Context())
			if how == "cancelled" {
				if code, _ := ask("DELETE", path, nil); code != 200 {
					t.Errorf("cancel is %d", code)
				}
			}
			end()
			if err := drain(ctx); err != nil {
				t.Error(err)
			}
			if _, now := ask("GET", path, nil); now.State != "cancelled" || now.Report != nil {
				t.Errorf("%+v", now)
			}
			if code, _ := ask("POST", pdp.PathReplays, zipped(t, map[string]string{"a.cedar": allMayRead})); code != 503 {
				t.Errorf("a replay of a service that ends is %d", code)
			}
		})
	}
}

// While PEPs get decisions, a replay works a tenth of the time; else all of it.
func TestReplaysGiveWay(t *testing.T) {
	var slept time.Duration
	p := pdp.NewPacer(func(_ context.Context, d time.Duration) error { slept += d; return nil })
	for range 101 {
		if err := p.Rest(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if slept < 100*9*time.Millisecond/2 {
		t.Errorf("100 pieces of a millisecond rested %s", slept)
	}
	idle := pdp.NewIdlePacer(func(context.Context, time.Duration) error { t.Error("rests although nobody asks"); return nil })
	for range 101 {
		if err := idle.Rest(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
}

// Several replays together work no more of the time than one.
func TestReplaysGiveWayTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		var worked atomic.Int64
		var all sync.WaitGroup
		for _, p := range pdp.NewPacers(4) {
			all.Go(func() {
				for p.Rest(ctx) == nil {
					time.Sleep(time.Millisecond) // the work
					worked.Add(int64(time.Millisecond))
				}
			})
		}
		all.Wait()
		if share := time.Duration(worked.Load()).Seconds() / 10; share > 0.12 || share < 0.05 {
			t.Errorf("four replays work %.2f of the time", share)
		}
	})
}

// A caller of some tenants replays the decisions of its tenants, and sees the replays of callers of its
// tenants.
func TestReplaysAreCutByTenant(t *testing.T) {
	keys := operatorKeys()
	keys.APIKeys = append(keys.APIKeys, pdp.APIKey{ID: "globex", SHA256: digest("k-globex"), Grant: pdp.Grant{Tenants: []string{"globex"}, Scopes: []pdp.Scope{pdp.ScopeAdmin}}})
	s := start(t, pdp.Config{PolicyDir: storeDir(t, map[string]string{"a.cedar": aliceMayRead}), Auth: keys})
	for _, tenant := range []string{"acme", "globex", "globex"} {
		_, _, err := send(t.Context(), &http.Client{Transport: bearer("k-pep")}, "POST", s.main+"/tenants/"+tenant+authzen.PathEvaluation, strings.Replace(aliceReads, "alice", tenant+"-bob", 1))
		if err != nil {
			t.Fatal(err)
		}
	}
	body := zipped(t, map[string]string{"a.cedar": allMayRead})
	job := s.replayed(t, "k-acme", "", body)
	text, err := json.Marshal(job)
	if err != nil || job.Report.Decisions != 1 || strings.Contains(string(text), "globex") || job.Of != 0 || job.Done != 0 {
		t.Errorf("%s %v", text, err)
	}
	for key, want := range map[string]int{"k-acme": 200, "k-all": 200, "k-globex": 404} {
		if code := askAs(t, key, "GET", s.admin+pdp.PathReplays+"/"+job.ID, "", nil); code != want {
			t.Errorf("%s gets %d, want %d", key, code, want)
		}
	}
	if code := askAs(t, "k-globex", "DELETE", s.admin+pdp.PathReplays+"/"+job.ID, "", nil); code != 404 {
		t.Errorf("globex cancels acme's: %d", code)
	}
	whole := s.replayed(t, "k-all", "", body)
	if code := askAs(t, "k-acme", "GET", s.admin+pdp.PathReplays+"/"+whole.ID, "", nil); code != 404 || whole.Report.Decisions != 3 {
		t.Errorf("acme sees the replay of all: %d, %+v", code, whole.Report)
	}
	if code, _ := s.upload(t, pdp.PathReplays+"?tenant=globex", "k-acme", bytes.NewReader(body)); code != 404 {
		t.Errorf("acme replays globex: %d", code)
	}
}

// An archive that would leave its folder, fill the memory or hide a file is refused.
func TestHostileZips(t *testing.T) {
	s := start(t, pdp.Config{})
	one := func(header *zip.FileHeader, text string) []byte {
		var out bytes.Buffer
		w := zip.NewWriter(&out)
		f, err := w.CreateHeader(header)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.WriteString(f, text)
		_ = w.Close()
		return out.Bytes()
	}
	link := &zip.FileHeader{Name: "a.cedar"}
	link.SetMode(os.ModeSymlink | 0o777)
	pipe := &zip.FileHeader{Name: "a.cedar"}
	pipe.SetMode(os.ModeNamedPipe | 0o600)
	twice := func() []byte {
		var out bytes.Buffer
		w := zip.NewWriter(&out)
		for range 2 {
			f, _ := w.Create("a.cedar")
			_, _ = io.WriteString(f, allMayRead)
		}
		_ = w.Close()
		return out.Bytes()
	}
	many := map[string]string{}
	for i := range 10_001 {
		many[fmt.Sprintf("f%d", i)] = ""
	}
	lying := zipped(t, map[string]string{"a.cedar": strings.Repeat(" ", 5<<20)})
	at := bytes.Index(lying, []byte("PK\x01\x02"))
	binary.LittleEndian.PutUint32(lying[at+24:], 10) // the length that the directory states
	for name, body := range map[string][]byte{
		"dots": one(&zip.FileHeader{Name: "../a.cedar"}, allMayRead), "dots inside": one(&zip.FileHeader{Name: "x/../../a.cedar"}, allMayRead), "absolute": one(&zip.FileHeader{Name: "/etc/a.cedar"}, allMayRead),
		"backslash": one(&zip.FileHeader{Name: `..\a.cedar`}, allMayRead), "line feed": one(&zip.FileHeader{Name: "a\n.cedar"}, allMayRead), "no name": one(&zip.FileHeader{Name: ""}, allMayRead),
		"link": one(link, "/etc/passwd"), "pipe": one(pipe, ""), "twice": twice(), "many": zipped(t, many), "file and folder": zipped(t, map[string]string{"a": "x", "a/b.cedar": allMayRead}),
		"bomb": zipped(t, map[string]string{"a.cedar": strings.Repeat(" ", 65<<20)}), "no archive": []byte("PK"), "empty": nil, "longer than stated": lying,
	} {
		if code, answer := s.upload(t, pdp.PathReplays, "", bytes.NewReader(body)); code != 400 {
			t.Errorf("%s: %d %s", name, code, answer)
		}
	}
	if code, _ := s.upload(t, pdp.PathReplays, "", strings.NewReader(strings.Repeat("x", 4<<20+1))); code != 413 {
		t.Errorf("more than 4 MiB: %d", code)
	}
	if job := s.replayed(t, "", "", zipped(t, map[string]string{"a.cedar": allMayRead})); job.State != "done" {
		t.Errorf("after them: %+v", job)
	}
}
