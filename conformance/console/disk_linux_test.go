package console_test

import (
	"net/http"
	"strings"
	"syscall"
	"testing"
	"unsafe"

	"github.com/policy-service/policy-service/conformance/process"
)

// stopDisk lets no write of the program to a file succeed any more, as a full disk does. The function that it
// returns starts the disk again.
func (s *service) stopDisk() (start func()) {
	s.test.Helper()
	before := s.limitFiles(0)
	return func() { s.limitFiles(before) }
}

// limitFiles sets how far the program can write files, and returns how far it could.
func (s *service) limitFiles(most uint64) uint64 {
	s.test.Helper()
	limits := func(change *syscall.Rlimit) (now syscall.Rlimit) {
		_, _, fault := syscall.RawSyscall6(syscall.SYS_PRLIMIT64, uintptr(s.Process.Process.Pid), syscall.RLIMIT_FSIZE, uintptr(unsafe.Pointer(change)), uintptr(unsafe.Pointer(&now)), 0, 0)
		if fault != 0 {
			s.test.Fatal(fault)
		}
		return now
	}
	was := limits(nil)
	limits(&syscall.Rlimit{Cur: most, Max: was.Max})
	return was.Cur
}

// decides reports whether the service decides on a request of a program.
func (s *service) decides() bool {
	s.test.Helper()
	answer, err := http.Post(s.URL+"/access/v1/evaluation", "application/json", strings.NewReader("{"+push("alice", ordinary)+"}"))
	if err != nil {
		s.test.Fatal(err)
	}
	defer answer.Body.Close()
	return answer.StatusCode == http.StatusOK
}

// While the disk takes no writes, the page says that a decision was not recorded. When it does again, the same
// form decides once.
func TestAcceptance11StoppedDisk(t *testing.T) {
	c := newCampus(t)
	for button, l := range map[string]look{"Deny": {noScript: true}, "Approve": {}} {
		t.Run(button, func(t *testing.T) {
			task := c.asked("call", "alice", ordinary)
			b := open(t, c.console, l)
			c.enter(b, "u-carol", "/requests/"+task)
			decide := func() {
				b.decide(button)
				if button == "Approve" {
					b.sees("Sign in at the provider")
					b.click("u-carol")
				}
			}
			b.fill("Comment, for the requester and the log", "seen")
			ticket := eval[string](b, `document.querySelector("#decide [name=ticket]").value`)
			start := c.stopDisk()
			if c.decides() {
				t.Error("the disk is not stopped")
			}
			decide()
			b.sees("Your decision was not recorded", "so it does not count")
			if comment := eval[string](b, `document.getElementById("comment").value`); comment != "seen" {
				t.Errorf("the comment is %q", comment)
			}
			start()
			process.Eventually(t, "the service decides again", c.decides)
			if r := c.read(task); r.Status != "pending" || c.entries(`"task":"`+task+`"`) != 1 { // its submission
				t.Errorf("the request is %s", r.Status)
			}
			if again := eval[string](b, `document.querySelector("#decide [name=ticket]").value`); again != ticket {
				t.Error("the form is another one")
			}
			decide()
			b.sees("this", "“seen”", "It is in the log")
			if r := c.read(task); len(r.Items[0].Votes) != 1 || c.entries(`"task":"`+task+`"`) != 2 {
				t.Errorf("the votes are %+v", r.Items[0].Votes)
			}
		})
	}
}
