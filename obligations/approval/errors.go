package approval

import "errors"

var (
	// ErrNotRequestable means that the denial is not one that a person may lift.
	ErrNotRequestable = errors.New("the denial is not requestable")
	// ErrBinding means that nothing proves that there was such a denial.
	ErrBinding = errors.New("the denial does not cover what is asked for")
	// ErrExpiredDenial means that the denial is too old.
	ErrExpiredDenial = errors.New("the denial has expired; evaluate again")
	// ErrDuplicate means that the idempotency key stands for another request.
	ErrDuplicate = errors.New("the Idempotency-Key was used for another request")
	// ErrUnknownTask means that there is no such task, or not for this caller.
	ErrUnknownTask = errors.New("unknown task")
	// ErrTaskExpired means that the handle of the task is no longer good.
	ErrTaskExpired = errors.New("the task has expired")
	// ErrTaskState means that the task is in no state for that.
	ErrTaskState = errors.New("the task is not in a state for that")
	// ErrUnknownApproval means that there is no such approval.
	ErrUnknownApproval = errors.New("unknown approval")
	// ErrIneligible means that this approver may not decide this request.
	ErrIneligible = errors.New("the approver may not decide this request")
	// ErrUndecidable means that policies cannot be asked who may decide a request.
	ErrUndecidable = errors.New("nobody can decide this request")
	// ErrActor means that the actors of a submission are not those that were
	// denied.
	ErrActor = errors.New("the actor is not the one that was denied")
	// ErrTooMany means that too many requests are pending.
	ErrTooMany = errors.New("too many requests are pending")
	// ErrTooManyKept means that requests, pending ones and those that ended in the
	// last day, take more room than they may.
	ErrTooManyKept = errors.New("too many requests are kept; one is forgotten a day after it has ended")
	// ErrCallback means that the PEP may not be called there.
	ErrCallback = errors.New("the callback endpoint is not allowed")
	// ErrUnsupported means that a submission has a member of a companion profile
	// that the service does not support.
	ErrUnsupported = errors.New("the member is not supported")
)
