package conformance_test

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/policy-service/policy-service/schemas/authzen"
)

var approvalCrashes = flag.Int("crash.approvals", 4, "how often TestApprovalsCrash kills the program")

// told is what a client was told about its one task.
type told struct {
	key, task string
	decided   []string // every decision that was accepted
	used      int      // how often the approval was good for a permit
}

// TestApprovalsCrash holds that no request that a client was told of is lost,
// that none is decided twice and no approval used twice, whenever the program
// is killed. Of each task two people decide at once, and two calls use what
// comes of it.
func TestApprovalsCrash(t *testing.T) {
	state := t.TempDir()
	arguments := []string{"--policies", unpack(t, "agent-tools"), "--public-url", "https://pdp.example.com"}
	var all []*told
	for round := range *approvalCrashes {
		all = append(all, approvalsUntilKilled(t, state, round, arguments)...)
	}
	s := serveToKill(t, state, arguments...)
	statuses := make(map[string]string)
	for _, one := range all {
		if one.task != "" {
			statuses[one.task] = statusOf(t, s.URL, one.task)
		}
	}
	s.Process.Process.Kill()
	<-s.Done
	exportLog(t, state) // no entry twice
	faults := approvalFaults(all, statuses, decisionsIn(logCommand(t, "export", "--state", state)))
	decided, used := 0, 0
	for _, one := range all {
		decided, used = decided+len(one.decided), used+one.used
	}
	t.Logf("%d crashes: %d tasks, %d told decided, %d told used, %d faults", *approvalCrashes, len(statuses), decided, used, len(faults))
	if decided == 0 || used == 0 {
		t.Error("nothing was decided or used")
	}
	for _, fault := range faults {
		t.Error(fault)
	}
}

// approvalFaults says where what clients were told is not what there is:
// statuses of the tasks afterwards, and the decisions of each task in the log.
func approvalFaults(all []*told, statuses map[string]string, logged map[string][]string) []string {
	var faults []string
	for _, one := range all {
		if one.task == "" {
			continue
		}
		status, decisions := statuses[one.task], logged[one.task]
		switch {
		case status == "":
			faults = append(faults, one.task+" is lost")
		case len(decisions) > 1 || len(one.decided) > 1:
			faults = append(faults, fmt.Sprintf("%s is decided as %v, and told as %v", one.task, decisions, one.decided))
		case (status == "pending") != (len(decisions) == 0) || len(decisions) == 1 && decisions[0] != status:
			faults = append(faults, fmt.Sprintf("%s is %s, and the log has %v", one.task, status, decisions))
		case len(one.decided) == 1 && one.decided[0] != status:
			faults = append(faults, fmt.Sprintf("%s is %s, and told as %v", one.task, status, one.decided))
		}
		if one.used > 1 {
			faults = append(faults, fmt.Sprintf("the approval of %s is used %d times", one.task, one.used))
		}
	}
	return faults
}

// The check of TestApprovalsCrash sees each kind of fault.
func TestApprovalsCrashControl(t *testing.T) {
	approved := map[string]string{"t": "approved"}
	once := map[string][]string{"t": {"approved"}}
	for name, test := range map[string]struct {
		told     told
		statuses map[string]string
		logged   map[string][]string
		faults   int
	}{
		"all is well":        {told{task: "t", decided: []string{"approved"}, used: 1}, approved, once, 0},
		"nobody was told":    {told{task: "t"}, approved, once, 0},
		"lost":               {told{task: "t"}, nil, nil, 1},
		"told otherwise":     {told{task: "t", decided: []string{"denied"}}, approved, once, 1},
		"told twice":         {told{task: "t", decided: []string{"approved", "denied"}}, approved, once, 1},
		"decided twice":      {told{task: "t"}, approved, map[string][]string{"t": {"approved", "denied"}}, 1},
		"not recorded":       {told{task: "t"}, approved, nil, 1},
		"recorded otherwise": {told{task: "t"}, approved, map[string][]string{"t": {"denied"}}, 1},
		"undone":             {told{task: "t", decided: []string{"approved"}}, map[string]string{"t": "pending"}, nil, 1},
		"used twice":         {told{task: "t", used: 2}, approved, once, 1},
	} {
		if got := approvalFaults([]*told{&test.told}, test.statuses, test.logged); len(got) != test.faults {
			t.Errorf("%s: %q", name, got)
		}
	}
}

// approvalsUntilKilled has clients ask, decide and use until the program is
// killed.
func approvalsUntilKilled(t *testing.T, state string, round int, arguments []string) []*told {
	t.Helper()
	s := serveToKill(t, state, arguments...)
	admin, err := os.ReadFile(filepath.Join(state, "admin-url"))
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	var all []*told
	var clients sync.WaitGroup
	for client := range 8 {
		clients.Go(func() {
			for n := 0; ; n++ {
				one := &told{key: fmt.Sprintf("%d-%d-%d", round, client, n)}
				mu.Lock()
				all = append(all, one)
				mu.Unlock()
				if one.live(t.Context(), s.URL, strings.TrimSpace(string(admin))) != nil {
					return // killed
				}
			}
		})
	}
	time.Sleep(300*time.Millisecond + rand.N(200*time.Millisecond))
	s.Process.Process.Kill()
	<-s.Done
	clients.Wait()
	return all
}

// live takes one call from the answer that it has to wait to its second use.
func (one *told) live(ctx context.Context, main, admin string) error {
	call := func(approval string) string {
		return fmt.Sprintf(`{"tenant_id":"acme","actor":{"actor_id":"agent-7","actor_type":"agent","roles":["tool_writer"]},"action":"tool.invoke",
			"resource":{"type":"tool","id":"jira:create","labels":{"category":"sensitive","impact":"write"}},"context":{"param_summary":%q%s}}`, one.key, approval)
	}
	var answer authzen.AuthorizeResponse
	if _, err := postJSON(ctx, main+authzen.PathAuthorize, call(""), &answer); err != nil {
		return err
	}
	terms, err := json.Marshal(answer.Approval)
	if err != nil {
		return err
	}
	var task authzen.TaskResponse
	status, err := postJSON(ctx, main+authzen.PathApprovals, fmt.Sprintf(`{"request":%s,"approval":%s}`, call(""), terms), &task)
	if err != nil || status != http.StatusAccepted {
		return fmt.Errorf("asked: %d %w", status, err)
	}
	one.task = task.Task.ID
	approval, err := one.decide(ctx, admin)
	if err != nil || approval == "" {
		return err
	}
	uses, err := both(func(int) (string, error) {
		var used authzen.AuthorizeResponse
		_, err := postJSON(ctx, main+authzen.PathAuthorize, call(fmt.Sprintf(`,"approval":{"id":%q}`, approval)), &used)
		if used.Allow && !used.Obligations.ApprovalRequired {
			return "used", err
		}
		return "", err
	})
	one.used = len(uses)
	return err
}

// decide has two people decide at once, and returns the approval if there is
// one.
func (one *told) decide(ctx context.Context, admin string) (approval string, err error) {
	var mu sync.Mutex
	one.decided, err = both(func(i int) (string, error) {
		decision := []string{"approve", "deny"}[i]
		var r struct {
			Items []struct {
				Approval struct {
					ID string `json:"id"`
				} `json:"approval"`
			} `json:"items"`
		}
		body := fmt.Sprintf(`{"decision":%q,"approver":{"type":"user","id":"carol"}}`, decision)
		status, err := postJSON(ctx, admin+"/admin/v1/requests/"+one.task+"/decision", body, &r)
		if err != nil || status != http.StatusOK {
			return "", err
		}
		mu.Lock()
		defer mu.Unlock()
		approval = r.Items[0].Approval.ID
		return map[string]string{"approve": "approved", "deny": "denied"}[decision], nil
	})
	return approval, err
}

// both does something twice at once, and returns what is not "".
func both(do func(int) (string, error)) ([]string, error) {
	var results [2]string
	var errs [2]error
	var all sync.WaitGroup
	for i := range results {
		all.Go(func() { results[i], errs[i] = do(i) })
	}
	all.Wait()
	found := slices.DeleteFunc(results[:], func(s string) bool { return s == "" })
	for _, err := range errs {
		if err != nil {
			return found, err
		}
	}
	return found, nil
}

// postJSON returns the status of an answer that has arrived whole.
func postJSON(ctx context.Context, url, body string, answer any) (int, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, url, strings.NewReader(body))
	if err != nil {
		return 0, err
	}
	request.Header.Set("Content-Type", "application/json")
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return 0, err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		return 0, err
	}
	if response.StatusCode >= http.StatusBadRequest {
		return response.StatusCode, nil
	}
	return response.StatusCode, json.Unmarshal(text, answer)
}

// statusOf asks how a task stands, "" for one that is not known.
func statusOf(t *testing.T, main, task string) string {
	t.Helper()
	response, err := http.Get(main + "/tenants/acme" + authzen.PathRequests + "/" + task)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	var answer authzen.TaskResponse
	if err := json.UnmarshalRead(response.Body, &answer); err != nil {
		t.Fatal(err)
	}
	return string(answer.Task.Status)
}

// decisionsIn lists the decisions of each task that a log has.
func decisionsIn(log []byte) map[string][]string {
	found := make(map[string][]string)
	for line := range bytes.Lines(log) {
		var entry struct {
			Request struct {
				Event  string `json:"event"`
				Task   string `json:"task"`
				Status string `json:"status"`
			} `json:"request"`
		}
		if err := json.Unmarshal(line, &entry); err == nil && slices.Contains([]string{"approve", "deny"}, entry.Request.Event) {
			found[entry.Request.Task] = append(found[entry.Request.Task], entry.Request.Status)
		}
	}
	return found
}
