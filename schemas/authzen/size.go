package authzen

// What names, punctuation and values of a fixed size take, about.
const (
	sizeOfDecision   = len(`{"decision":false},`)
	sizeOfContext    = len(`"context":{"evaluation_id":"","evaluated_at":"2026-01-01T00:00:00Z","reason":""}`)
	sizeOfObligation = len(`{"id":"","type":"","properties":},`)
	sizeOfRequest    = len(`"access_request":{"endpoint":"","template":"","expires_at":"","binding_token":"","request_schema_url":""}`)
	sizeOfFound      = len(`{"type":"","id":"","obligations":[]},`)
)

// Size is about how many bytes of an answer a decision with that context takes.
func (c *DecisionContext) Size() int {
	if c == nil {
		return sizeOfDecision
	}
	n := sizeOfDecision + sizeOfContext + len(c.EvaluationID) + len(c.Reason) + len(c.NextAction) +
		c.ReasonUser.size() + c.ReasonAdmin.size() + sizeOf(c.Obligations)
	if c.Error != nil {
		n += len(c.Error.Message)
	}
	if r := c.AccessRequest; r != nil {
		n += sizeOfRequest + len(r.Endpoint) + len(r.Template) + len(r.BindingToken) + len(r.Display) + len(r.RequestSchemaURL)
	}
	if r := c.CapabilityRequest; r != nil {
		n += sizeOfRequest + len(r.Endpoint) + len(r.Template)
		for _, tool := range r.Tools {
			n += len(tool)
		}
	}
	return n
}

// Size is about how many bytes of an answer an entity takes.
func (f FoundEntity) Size() int { return sizeOfFound + len(f.Type) + len(f.ID) + sizeOf(f.Obligations) }

func (r Reason) size() (n int) {
	for language, text := range r {
		n += len(language) + len(text) + len(`"":"",`)
	}
	return n
}

func sizeOf(all []Obligation) (n int) {
	for _, o := range all {
		n += sizeOfObligation + len(o.ID) + len(o.Type) + len(o.Properties)
	}
	return n
}
