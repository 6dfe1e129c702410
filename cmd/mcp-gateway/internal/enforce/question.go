package enforce

import (
	"errors"
	"fmt"
	"slices"

	"github.com/go-json-experiment/json"

	"github.com/policy-service/policy-service/pdp/client"
	"github.com/policy-service/policy-service/schemas/authzen"
)

// A Question is what the PDP is asked before a call goes on: one evaluation, or
// several of which every one must be permitted. The zero Question lets nothing
// through.
type Question struct {
	Pass         bool // forward the call without asking the PDP
	Evaluation   *authzen.EvaluationRequest
	Evaluations  *authzen.EvaluationsRequest
	OlderDialect bool // the tool is declared in a dialect whose denials had another code
}

var (
	errNoQuestion = errors.New("the call has no evaluation to ask for")
	// ErrOtherQuestion means that a question has no evaluation of that number.
	ErrOtherQuestion = errors.New("the PDP was not asked this")
)

// Request returns evaluation n of a question, the whole of it, from 0.
func (q *Question) Request(n int) (*authzen.EvaluationRequest, error) {
	switch {
	case n == 0 && q.Evaluation != nil:
		return q.Evaluation, nil
	case n < 0 || q.Evaluations == nil || n >= len(q.Evaluations.Evaluations):
		return nil, ErrOtherQuestion
	}
	item := q.Evaluations.Items()[n]
	if item.Err != nil {
		return nil, item.Err
	}
	return item.Request, nil
}

// Approvals are what people have approved of a question, by the number of the
// evaluation.
type Approvals map[int]*authzen.Approval

// Approved returns the question with approvals, to be asked again as a whole.
// Each is claimed by the evaluation that it is of and by no other.
func (q *Question) Approved(approvals Approvals) (*Question, error) {
	approved := *q
	if q.Evaluations != nil {
		batch := *q.Evaluations
		batch.Evaluations = slices.Clone(batch.Evaluations)
		approved.Evaluations = &batch
	}
	for n, approval := range approvals {
		request, err := q.Request(n)
		if err != nil {
			return nil, fmt.Errorf("evaluation %d: %w", n, err)
		}
		if request, err = client.Approved(request, approval); err != nil {
			return nil, fmt.Errorf("evaluation %d: %w", n, err)
		}
		if approved.Evaluation != nil {
			approved.Evaluation = request
			continue
		}
		if approved.Evaluations.Evaluations[n], err = json.Marshal(request); err != nil {
			return nil, fmt.Errorf("evaluation %d: %w", n, err)
		}
	}
	return &approved, nil
}
