package pdp_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/policy-service/policy-service/pdp"
	"github.com/policy-service/policy-service/schemas/authzen"
)

// The answer to a batch whose items share a context does not repeat that context for each item.
// Items without an offer have a reason.
func TestBatchAnswerIsBounded(t *testing.T) {
	limits := pdp.Limits{Deadline: time.Hour} // each batch takes seconds with the race detector, and the answer is what counts here
	s := start(t, pdp.Config{Policies: docs(`{}`), Limits: limits})
	const items, most = 1000, 8
	filler := strings.Repeat("x", 6<<10)
	texts := `["` + strings.Repeat(filler+`","`, 9) + `"]`
	for name, shared := range map[string]string{
		"context":              `"subject":{"type":"user","id":"alice"},"context":{"texts":` + texts + `}`,
		"subject's properties": `"subject":{"type":"user","id":"alice","properties":{"texts":` + texts + `}}`,
		"subject's id":         `"subject":{"type":"user","id":"` + strings.Repeat(filler, 10) + `"}`,
	} {
		body := fmt.Sprintf(`{%s,"action":{"name":"read"},"resource":{"type":"doc","id":"1"},"evaluations":[{}%s]}`, shared, strings.Repeat(",{}", items-1))
		response, answer := post(t, http.DefaultClient, s.main+authzen.PathEvaluations, body)
		offers, denied := strings.Count(answer, `"binding_token"`), strings.Count(answer, `"decision":false`)
		if response.StatusCode != 200 || len(answer) > most*len(body) || denied != items || offers == 0 {
			t.Errorf("%s: %s, %d bytes are answered with %d, %d denials, %d offers", name, response.Status, len(body), len(answer), denied, offers)
		}
		if without := strings.Count(answer, "offers no more approvals"); without != items-offers {
			t.Errorf("%s: %d items say that there is no offer, %d have one", name, without, offers)
		}
	}
}
