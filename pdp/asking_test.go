package pdp_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/policy-service/policy-service/pdp"
)

// People who may not read the log see which policy asks for a person, and its reason.
func TestPageSaysWhichPolicyAsks(t *testing.T) {
	s := newStepUp(t, nil)
	task := s.asked("", "strict", "alice", "")
	page := s.browser.open(task)
	if words := page.words(); !strings.Contains(words, "The policy strict asks for a person: “Whatever is strict needs a second person.”") || strings.Contains(page.text, `href="/decisions/`) {
		t.Errorf("%s", words)
	}
	if words := s.browser.open(s.task).words(); !strings.Contains(words, "The policy call asks for a person") || strings.Contains(words, "Whatever is strict") {
		t.Errorf("a policy without a reason: %s", words)
	}
	if got := s.read(task).Asking; len(got) != 1 || len(got[0]) != 1 || got[0][0].Policy != "strict" {
		t.Errorf("the API has %+v", got)
	}
}

// Of policies that have changed since, the reason of now is not shown for that of then.
func TestPolicyThatAskedHasChanged(t *testing.T) {
	store := storeDir(t, map[string]string{"policies.cedar": string(anybodyApproves["policies.cedar"].Data), "config.yaml": string(anybodyApproves["config.yaml"].Data)})
	s := &staff{service: start(t, pdp.Config{PolicyDir: store}), t: t}
	task := s.asked("", "strict", "alice", "")
	writeFile(t, store+"/policies.cedar", strings.Replace(string(anybodyApproves["policies.cedar"].Data), "Whatever is strict", "Something else", 1))
	if code := s.reload(t); code != http.StatusOK {
		t.Fatalf("reload: %d", code)
	}
	if got := s.read(task).Asking; len(got) != 1 || len(got[0]) != 1 || got[0][0].Policy != "strict" || got[0][0].Reason != "" {
		t.Errorf("the API has %+v", got)
	}
}
