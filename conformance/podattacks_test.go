package conformance_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/google/uuid"

	"github.com/policy-service/policy-service/schemas/authzen"
)

// podAttacks are what a tenant, or a caller, may try, each bounded in count and
// time. They say what came back.
var podAttacks = []struct {
	name string
	run  func(*pod) string
}{
	{"a store with aliases in aliases", func(p *pod) string { return p.bomb("config.yaml", aliasBomb()) }},
	{"a store with types in types", func(p *pod) string { return p.bomb("schema.cedarschema", typeBomb()) }},
	{"a store with 100,000 unknown keys", func(p *pod) string { return p.bomb("config.yaml", keyBomb()) }},
	{"600 tenants with names of 900 kB", func(p *pod) string { return p.madeUp(60*p.scale, 900_000) }},
	{"10,050 tenants with short names", func(p *pod) string { return p.madeUp(1005*p.scale, 8) }},
	{"800 streams of HTTP/2 whose bodies do not end", (*pod).endless},
	{"contexts of 900 kB", func(p *pod) string {
		return p.post(70*p.scale, 4, acmeKey, authzen.PathEvaluation, always(withContext("read", 900_000)))
	}},
	{"requests that name evaluations by made-up ids", (*pod).madeUpIDs},
	{"batches that need approval: 19 kB", func(p *pod) string { return p.batches(10*p.scale, 16<<10) }},
	{"batches that need approval: 251 kB", func(p *pod) string { return p.batches(4*p.scale, 248<<10) }},
	{"requests of 320 kB, submitted and cancelled", (*pod).cancelled},
	{"lists of requests", func(p *pod) string { return p.get(4*p.scale, 8, "/admin/v1/requests") }},
	{"queries of the log", func(p *pod) string { return p.get(2*p.scale, 8, "/admin/v1/log/query?limit=10000") }},
	{"searches among 60,000 entities", func(p *pod) string {
		return p.post(48*p.scale, 48, acmeKey, authzen.PathSearchResource, always(`{"subject":{"type":"user","id":"u"},"action":{"name":"scan"},"resource":{"type":"doc"}}`))
	}},
	{"10 connections of a stranger in each 10 ms", (*pod).strangers},
}

// podTime is how long one attack takes at most.
func (p *pod) podTime() (context.Context, context.CancelFunc) {
	return context.WithTimeout(p.t.Context(), time.Minute)
}

// together has so many act at once until it is done n times.
func (p *pod) together(n, at int, act func(ctx context.Context, client *http.Client, i int)) {
	ctx, cancel := p.podTime()
	defer cancel()
	client := podClient(false)
	defer client.CloseIdleConnections()
	todo := make(chan int)
	var all sync.WaitGroup
	for range at {
		all.Go(func() {
			for i := range todo {
				act(ctx, client, i)
			}
		})
	}
	for i := range n {
		todo <- i
	}
	close(todo)
	all.Wait()
}

// post sends n bodies, so many at once.
func (p *pod) post(n, at int, key, path string, body func(i int) io.Reader) string {
	var tally podTally
	p.together(n, at, func(ctx context.Context, client *http.Client, i int) {
		status, header, _, err := podAsk(ctx, client, http.MethodPost, p.server.URL+path, key, body(i))
		tally.note(status, header, err)
	})
	return tally.String()
}

// get asks the admin listener n times, so many at once.
func (p *pod) get(n, at int, path string) string {
	var tally podTally
	p.together(n, at, func(ctx context.Context, client *http.Client, _ int) {
		status, header, _, err := podAsk(ctx, client, http.MethodGet, p.server.Admin+path, operatorKey, http.NoBody)
		tally.note(status, header, err)
	})
	return tally.String()
}

// bomb puts a file into the folder of one tenant, sees it refused, takes it away,
// and sees that a change of the other tenant comes into force.
func (p *pod) bomb(name, text string) string {
	path := filepath.Join(p.dir, "tenants", "acme", name)
	before, err := os.ReadFile(path)
	had := err == nil
	place(p.t, path, text)
	start := time.Now()
	back := "not refused"
	for ; time.Since(start) < 20*time.Second; time.Sleep(50 * time.Millisecond) {
		if _, _, body, err := podAsk(p.t.Context(), http.DefaultClient, http.MethodGet, p.server.Admin+"/readyz?verbose", operatorKey, http.NoBody); err == nil && strings.HasPrefix(body, "stale") {
			back = fmt.Sprintf("refused after %v", time.Since(start).Round(10*time.Millisecond))
			break
		}
	}
	if had {
		place(p.t, path, string(before))
	} else {
		must(p.t, os.Remove(path))
	}
	return back + ", " + p.followed()
}

// followed changes the policies of the tenant that keeps to the rules, and says
// how long that took to come into force.
func (p *pod) followed() string {
	changed := strings.Replace(betaReads, "read", "changed", 1)
	in := func(want bool) bool {
		_, _, body, err := podAsk(p.t.Context(), p.client, http.MethodPost, p.server.URL+authzen.PathEvaluation, betaKey, strings.NewReader(changed))
		return err == nil && body == decision(want)
	}
	start := time.Now()
	for _, want := range []bool{true, false} {
		place(p.t, filepath.Join(p.dir, "tenants", "beta", "beta.cedar"), betaPolicy(!want))
		for !in(want) {
			if time.Since(start) > 20*time.Second {
				p.t.Errorf("a change of another tenant is not in force")
				return "a change of another tenant is not in force"
			}
			time.Sleep(20 * time.Millisecond)
		}
	}
	return fmt.Sprintf("two changes of another tenant in force after %v", time.Since(start).Round(10*time.Millisecond))
}

// aliasBomb is YAML whose aliases make a power of nine of it.
func aliasBomb() string {
	var b strings.Builder
	b.WriteString("approval_templates:\n  t:\n    display:\n      a: &a [x,x,x,x,x,x,x,x,x]\n")
	for c := 'b'; c <= 'i'; c++ {
		alias := fmt.Sprintf("*%c", c-1)
		fmt.Fprintf(&b, "      %c: &%c [%s]\n", c, c, strings.TrimSuffix(strings.Repeat(alias+",", 9), ","))
	}
	return b.String()
}

// typeBomb is a schema whose common types make a power of four of it.
func typeBomb() string {
	var b strings.Builder
	b.WriteString("type A0 = {x: Long};\n")
	for i := 1; i <= 14; i++ {
		fmt.Fprintf(&b, "type A%d = {a: A%[2]d, b: A%[2]d, c: A%[2]d, d: A%[2]d};\n", i, i-1)
	}
	b.WriteString("entity user = {x: A14};\n")
	return b.String()
}

// keyBomb is YAML of keys that nobody knows.
func keyBomb() string {
	var b strings.Builder
	for i := range 100_000 {
		fmt.Fprintf(&b, "key%d: 1\n", i)
	}
	return b.String()
}

// madeUp asks for decisions of tenants that there are not, by a key that is good
// for every tenant.
func (p *pod) madeUp(n, length int) string {
	rest := strings.Repeat("t", length) + `","actor":{"actor_id":"a","actor_type":"user"},"action":"read","resource":{"type":"doc","id":"d"}}`
	return p.post(n, 4, gatewayKey, authzen.PathAuthorize, func(i int) io.Reader {
		return io.MultiReader(strings.NewReader(fmt.Sprintf(`{"tenant_id":"%d-`, i)), strings.NewReader(rest))
	})
}

// always is the same body for each request: what asks shares the processors with
// what is asked.
func always(body string) func(int) io.Reader {
	return func(int) io.Reader { return strings.NewReader(body) }
}

// endless opens streams of HTTP/2, each with a body that stops before its end.
func (p *pod) endless() string {
	const connections, streams, bytes = 8, 100, 1_000_000
	ctx, cancel := p.podTime()
	defer cancel()
	var tally podTally
	var all sync.WaitGroup
	for range connections {
		client := podClient(true)
		defer client.CloseIdleConnections()
		for range streams {
			all.Go(func() {
				body := &stalled{begin: betaReads[:len(betaReads)-1] + `,"ignored":"`, left: bytes, over: make(chan struct{})}
				status, header, _, err := podAsk(ctx, client, http.MethodPost, p.server.URL+authzen.PathEvaluation, acmeKey, body)
				tally.note(status, header, err)
			})
		}
	}
	all.Wait()
	return tally.String()
}

// A stalled body has so many bytes, and then neither more nor an end.
type stalled struct {
	begin string
	left  int
	over  chan struct{}
	end   sync.Once
}

func (b *stalled) Close() error {
	b.end.Do(func() { close(b.over) })
	return nil
}

var filling = strings.Repeat("x", 64<<10)

func (b *stalled) Read(p []byte) (int, error) {
	n := copy(p, b.begin)
	b.begin = b.begin[n:]
	if n == 0 {
		n = copy(p, filling[:min(len(filling), b.left)])
		b.left -= n
	}
	if n == 0 {
		<-b.over
		return 0, io.ErrUnexpectedEOF
	}
	return n, nil
}

// withContext is a request of acme with a context of so many bytes.
func withContext(action string, bytes int) string {
	return fmt.Sprintf(`{"subject":{"type":"user","id":"u"},"action":{"name":%q},"resource":{"type":"doc","id":"d"},"context":{%s}}`, action, contextOf(bytes))
}

func contextOf(bytes int) string {
	const each = 8000
	var members []string
	for i := 0; i*each < bytes; i++ {
		members = append(members, fmt.Sprintf(`"k%d":%q`, i, strings.Repeat("x", min(each, bytes-i*each))))
	}
	return strings.Join(members, ",")
}

// madeUpIDs submits requests for evaluations that there were not.
func (p *pod) madeUpIDs() string {
	return p.post(4*p.scale, 4, acmeKey, authzen.PathRequests, func(int) io.Reader {
		return strings.NewReader(submission(withContext("write", 10), uuid.Must(uuid.NewV7()).String()))
	})
}

// submission asks that a person lift the denial of a request.
func submission(request, evaluationID string) string {
	return fmt.Sprintf(`%s,"denial":{"evaluation_id":%q,"expires_at":%q}}`,
		strings.TrimSuffix(request, "}"), evaluationID, time.Now().Add(time.Hour).UTC().Format(time.RFC3339))
}

// batches asks for a thousand decisions that need approval, with one context.
func (p *pod) batches(n, bytes int) string {
	items := strings.TrimSuffix(strings.Repeat("{},", 1000), ",")
	body := strings.TrimSuffix(withContext("write", bytes), "}") + `,"evaluations":[` + items + `]}`
	return p.post(n, 4, acmeKey, authzen.PathEvaluations, always(body))
}

// cancelled submits Access Requests with large contexts and cancels them.
func (p *pod) cancelled() string {
	request := withContext("write", 320_000)
	var tally podTally
	p.together(20*p.scale, 4, func(ctx context.Context, client *http.Client, i int) {
		status, header, err := p.submitAndCancel(ctx, client, i, request)
		tally.note(status, header, err)
	})
	return tally.String()
}

// submitAndCancel leaves every fifth request as it is.
func (p *pod) submitAndCancel(ctx context.Context, client *http.Client, i int, request string) (int, http.Header, error) {
	status, header, answer, err := podAsk(ctx, client, http.MethodPost, p.server.URL+authzen.PathEvaluation, acmeKey, strings.NewReader(request))
	if err != nil || status != http.StatusOK {
		return status, header, err
	}
	var denied authzen.Decision
	if err := json.Unmarshal([]byte(answer), &denied); err != nil || denied.Context == nil || denied.Context.AccessRequest == nil {
		return status, header, fmt.Errorf("no offer: %w", err)
	}
	offer := denied.Context.AccessRequest
	submission := fmt.Sprintf(`%s,"denial":{"expires_at":%q,"binding_token":%q}}`, strings.TrimSuffix(request, "}"), offer.ExpiresAt.Format(time.RFC3339), offer.BindingToken)
	status, header, _, err = podAsk(ctx, client, http.MethodPost, p.server.URL+authzen.PathRequests, acmeKey, strings.NewReader(submission))
	if err != nil || status/100 != 2 || i%5 == 0 {
		return status, header, err
	}
	task := header.Get("Location")
	status, header, _, err = podAsk(ctx, client, http.MethodPost, p.server.URL+task[strings.Index(task, authzen.PathRequests):]+"/cancel", acmeKey, strings.NewReader("{}"))
	return status, header, err
}

// strangers connect without a key, and leave their connections open.
func (p *pod) strangers() string {
	ctx, cancel := p.podTime()
	defer cancel()
	var tally podTally
	pace := time.NewTicker(10 * time.Millisecond)
	defer pace.Stop()
	var clients []*http.Client
	for range 40 * p.scale {
		<-pace.C
		for range 10 {
			client := podClient(false)
			clients = append(clients, client)
			status, header, _, err := podAsk(ctx, client, http.MethodGet, p.server.URL+"/openapi.yaml", "", http.NoBody)
			tally.note(status, header, err)
		}
	}
	for _, client := range clients {
		client.CloseIdleConnections()
	}
	return tally.String()
}
