package obligations

import (
	"github.com/go-json-experiment/json/jsontext"

	"github.com/policy-service/policy-service/schemas/authzen"
)

// Fill fills in by the text and by the tokens; ok says whether the first can.
func Fill(properties jsontext.Value, r *authzen.EvaluationRequest) (byText, byTokens jsontext.Value, ok bool) {
	byText, ok = fillText(properties, r)
	return byText, fillTokens(properties, r), ok
}
