package console_test

import (
	"bufio"
	"os/exec"
	"testing"

	"github.com/policy-service/policy-service/conformance/docpage"
	"github.com/policy-service/policy-service/conformance/external"
)

// People sign in, and sign in again to approve, at a provider of another project, with its own pages.
func TestSignInAtAnotherProvider(t *testing.T) {
	external.Packages(t, "testdata")
	chromium(t)
	issuer := "http://" + docpage.FreeAddress(t)
	address := docpage.FreeAddress(t)
	startProvider(t, issuer, "http://"+address+"/sign-in/callback")
	c := &campus{office: newOffice(t, "--config", oidcSettings(t, issuer, "http://"+address), "--console.listen", address)}
	task := c.asked("call", "alice", ordinary)
	b := open(t, c.console, look{desktop: true})
	b.visit("/requests/" + task)
	b.enterAt("carol")
	b.click("Continue")
	b.at("/requests/" + task)
	b.decide("Approve")
	b.enterAt("carol")
	b.sees("You approved this", "proved by oidc", "bound to this decision")
	if vote := c.read(task).Items[0].Votes[0]; vote.Approver.ID != "carol" {
		t.Errorf("the vote is %+v", vote)
	}
	b.complaints() // of its pages
}

// enterAt signs in on the page of the other provider.
func (b *browser) enterAt(person string) {
	b.Helper()
	b.sees("Sign-in")
	b.fill("Enter any login", person)
	b.fill("and password", "anything")
	b.click("Sign-in")
}

// startProvider starts oidc-provider, and ends it with the test.
func startProvider(t *testing.T, issuer, redirect string) {
	t.Helper()
	provider := exec.Command(external.Program(t, "node"), "provider.mjs", issuer, redirect)
	provider.Dir = "testdata"
	out, err := provider.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := provider.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		provider.Process.Kill()
		provider.Wait()
	})
	if line, err := bufio.NewReader(out).ReadString('\n'); err != nil {
		t.Fatalf("the provider says %q: %v", line, err)
	}
}
