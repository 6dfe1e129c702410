package evaluation_test

import (
	"bytes"
	"errors"
	"regexp"
	"strings"
	"testing"

	"github.com/policy-service/policy-service/evaluation/faults"
	"github.com/policy-service/policy-service/evaluation/snapshot"
)

// The store says in which form notifications are sent.
func TestNotificationTo(t *testing.T) {
	const one, two = `{\"to\":\"soc\",\"body\":\"b\"}`, `{\"to\":[\"soc\",\"ops\"],\"body\":\"b\"}`
	for _, test := range []struct{ settings, written, want, fault string }{
		{"", one, `{"body":"b","decision_subject":"alice","to":["soc"]}`, ""},
		{"", two, `{"body":"b","decision_subject":"alice","to":["soc","ops"]}`, ""},
		{"notification_to: array", one, `{"body":"b","decision_subject":"alice","to":["soc"]}`, ""},
		{"notification_to: string", one, `{"body":"b","to":"soc"}`, ""},
		{"notification_to: string", two, "", `p.cedar:1:13: policy told: @obligation_notification: notification_to is string: it has several in "to"`},
	} {
		s, err := snapshot.Compile(snapshot.Archive{
			"config.yaml": []byte(test.settings),
			"p.cedar":     []byte(`@id("told") @obligation_notification("` + test.written + `") permit (principal, action, resource);`),
		})
		var found faults.List
		if errors.As(err, &found) != (test.fault != "") || err != nil && !strings.Contains(err.Error(), test.fault) {
			t.Errorf("%s %s: %v", test.settings, test.written, err)
		}
		if err != nil {
			continue
		}
		got, err := s.Decide(request(t, question("user alice", "read", "doc 1")), snapshot.Environment{Time: now})
		if err != nil || len(got.Obligations) != 1 || string(got.Obligations[0].Properties) != test.want {
			t.Errorf("%s %s: %+v, %v", test.settings, test.written, got, err)
		}
	}
}

// What a log of before has in the form of July is no obligation that was lost.
func TestReplayOfJuly(t *testing.T) {
	july := strings.Replace(replayed, "clock: now", "clock: now\nnotification_to: string", 1)
	l := newLogged(t, july)
	l.decisions()
	report := l.replay(replayed, l.lines("", ""))
	if len(report.Flips) > 0 || report.Widens() || len(report.Unfaithful) > 0 {
		t.Errorf("flips %+v, unfaithful %v", report.Flips, report.Unfaithful)
	}
}

// Nor does a log that a program of before wrote say that its own policies come
// to something else.
func TestReplayFromJuly(t *testing.T) {
	l := newLogged(t, replayed)
	l.decisions()
	about := regexp.MustCompile(`"decision_subject":"[a-z]+","to":\["ops"\]`)
	changed := 0
	var lines [][]byte
	for _, line := range l.lines("", "") {
		was := about.ReplaceAll(line, []byte(`"to":"ops"`))
		if !bytes.Equal(was, line) {
			changed++
		}
		lines = append(lines, was)
	}
	report := l.replay(replayed, lines)
	if len(report.Flips) > 0 || len(report.Unfaithful) > 0 || changed == 0 {
		t.Errorf("%d lines: flips %+v, unfaithful %v", changed, report.Flips, report.Unfaithful)
	}
}
