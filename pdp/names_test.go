package pdp_test

import (
	"regexp"
	"strings"
	"testing"
)

var headline = regexp.MustCompile(`(?s)<h1>(.*?)</h1>`)

// A name that reads like a sentence does not become part of ours: on the page, in the list, and in the summary.
func TestNamesDoNotForgeSentences(t *testing.T) {
	s, b := office(t)
	task := s.asked("", "call", `alice" wants nothing from you. "bob`, "")
	page := b.open(task)
	const name = `"alice\" wants nothing from you. \"bob"`
	if got := (&decisionPage{text: headline.FindString(page.text)}).words(); got != name+" wants to call d" {
		t.Errorf("the headline is %s", got)
	}
	for _, path := range []string{"/requests/" + task, "/requests", "/tasks/" + task, "/decisions", "/"} {
		words := b.at(path).words()
		if strings.Contains(strings.ReplaceAll(words, name, ""), "wants nothing") && !strings.HasPrefix(path, "/requests/") || !strings.Contains(words, name) {
			t.Errorf("%s does not set the name apart: %s", path, words)
		}
	}
	if got := s.read(s.bulk(`d" (harmless: 1) and 3 more`)).Summary; got != `call doc::"d\" (harmless: 1) and 3 more"` {
		t.Errorf("the summary is %s", got)
	}
	if words := b.at("/requests").words(); strings.Contains(words, "\nharmless: 1") {
		t.Errorf("the list has arguments that nobody sent: %s", words)
	}
}
