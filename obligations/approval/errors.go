package approval

import "errors"

var (
	// ErrNotRequestable means that no approval can lift the denial.
	ErrNotRequestable = errors.New("the denial is not requestable")
	// ErrBinding means that no proof of the denial covers the submission.
	ErrBinding = errors.New("the denial does not cover what is asked for")
	// ErrExpiredDenial means that the denial is too old.
	ErrExpiredDenial = errors.New("the denial has expired; evaluate again")
	// ErrDuplicate means that the Idempotency-Key belongs to another submission.
	ErrDuplicate = errors.New("the Idempotency-Key was used for another request")
	// ErrUnknownTask means that this caller has no such task.
	ErrUnknownTask = errors.New("unknown task")
	// ErrTaskExpired means that the task is no longer stored.
	ErrTaskExpired = errors.New("the task has expired")
	// ErrTaskState means that the state of the task does not allow the event.
	ErrTaskState = errors.New("the task is not in a state for that")
	// ErrSheet means that the approver was shown another request than the stored one.
	ErrSheet = errors.New("the request is not the one that was shown")
	// ErrPolicies means that other policies are active than those under which the approver was shown the request.
	ErrPolicies = errors.New("the policies have changed since the request was shown")
	// ErrUnknownApproval means that no approval has this id.
	ErrUnknownApproval = errors.New("unknown approval")
	// ErrIneligible means that this approver may not decide this request.
	ErrIneligible = errors.New("the approver may not decide this request")
	// ErrUndecidable means that the policies' schema does not allow the question who may decide a
	// request.
	ErrUndecidable = errors.New("nobody can decide this request")
	// ErrActor means that the actors of a submission differ from those of the denial.
	ErrActor = errors.New("the actor is not the one that was denied")
	// ErrTooMany means that too many requests are pending.
	ErrTooMany = errors.New("too many requests are pending")
	// ErrTooManyKept means that stored requests exceed the quota. Pending ones and those that ended
	// in the last day count.
	ErrTooManyKept = errors.New("too many requests are kept; one is forgotten a day after it has ended")
	// ErrCallback means that the callback endpoint is not allowed.
	ErrCallback = errors.New("the callback endpoint is not allowed")
	// ErrUnsupported means that a submission uses a companion profile that the service does not
	// support.
	ErrUnsupported = errors.New("the member is not supported")
)
