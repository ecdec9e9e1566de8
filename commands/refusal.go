package commands

import "github.com/hoplog/hoplog/schemas/pb"

// Stable codes of refusals, as clients see them.
const (
	// CodeInvalidRequest: the request breaks a rule that has no code of its own; Field names where.
	CodeInvalidRequest = "invalid_request"
	// CodeInvalidTarget: the target URL breaks a target rule.
	CodeInvalidTarget = "invalid_target"
	// CodeInvalidCode: the custom code breaks a code rule.
	CodeInvalidCode = "invalid_code"
	// CodeReservedCode: the code is a reserved word.
	CodeReservedCode = "reserved_code"
	// CodeCodeTaken: the code names a link already, or a tombstone.
	CodeCodeTaken = "code_taken"
	// CodeNotFound: no such link.
	CodeNotFound = "not_found"
	// CodeForbidden: the caller may not do this to this link.
	CodeForbidden = "forbidden"
	// CodeVersionMismatch: the link or domain has another version than the caller asked for.
	CodeVersionMismatch = "version_mismatch"
	// CodeIdempotencyKeyReused: the key was used with another body.
	CodeIdempotencyKeyReused = "idempotency_key_reused"
	// CodeDomainNotOwned: the short domain is unknown or another owner's.
	CodeDomainNotOwned = "domain_not_owned"
	// CodeTargetBlocked: the target is on a list.
	CodeTargetBlocked = "target_blocked"
	// CodeQuotaExceeded: the owner's quota is used up. Not stored under the request's key.
	CodeQuotaExceeded = "quota_exceeded"
	// CodeCommandExpired: the command's time is too far from the writer's. Not stored under the request's key.
	CodeCommandExpired = "command_expired"
	// CodeTooLarge: the envelope would be too large.
	CodeTooLarge = "too_large"
	// CodeUnavailable: what the decision needs cannot be had now. Not stored under the request's key.
	CodeUnavailable = "unavailable"
)

// Refusal is why a command was not carried out: an outcome, not a failure of the system.
type Refusal struct {
	// Code is one of the stable codes above.
	Code string
	// Field names the field of the request that is at fault; empty if none is.
	Field string
	// Detail says in words what is wrong and, where it can, what to do.
	Detail string
}

func (r *Refusal) Error() string { return r.Code + ": " + r.Detail }

// Refuse returns a Refusal. Code is one of the stable codes.
func Refuse(code, field, detail string) *Refusal {
	return &Refusal{Code: code, Field: field, Detail: detail}
}

// Decision returns the decision that the refusal is: no event, and an outcome that says why.
func (r *Refusal) Decision() Decision {
	return Decision{Outcome: &pb.Outcome{Error: r.Code, Detail: r.Detail, Field: r.Field}}
}
