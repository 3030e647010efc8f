// Package members is what a proxy asks of the other processes that serve the same endpoints over
// one database, so that any of them can answer any request. Package replicas of cmd/junction
// implements it; without an implementation a proxy is alone.
//
// Each session and each parked call is in the memory of one member, its owner. The IDs that clients
// hold name the owner, sealed. A member that gets a request for another owner forwards the whole
// request to it, once, with its bytes, its credentials and the client's address. The owner
// authenticates the request itself, so a member cannot speak for a user.
package members

import (
	"context"
	"errors"
	"net/http"
	"time"

	"junction/policy"
)

// Errors of Members. They are matched with errors.Is.
var (
	// ErrGone means that the member has ended, or has lost its lease: what it had in memory is lost.
	ErrGone = errors.New("the process that had it has ended")
	// ErrAlone means that this process is no member at the moment, because it cannot reach the
	// database or was refused. It must not answer for sessions then.
	ErrAlone = errors.New("this process has no connection to the others")
	// ErrDeleted means that the client has deleted the session.
	ErrDeleted = errors.New("the session was deleted")
)

// Members are the processes over one database, with this one. All methods may be called
// concurrently. Methods with a context may ask the database; the others do not block.
type Members interface {
	// Self returns the ID of this process. It is new at each start, and after each loss of the lease.
	// It is "" while this process is no member.
	Self() string

	// Owner returns the ID of the member that has a session. first is the member that created it,
	// which is the owner while it lives, without a question to the database. After its end exactly
	// one member, usually the one that asks first, becomes the owner. until is the time when the
	// session ID expires. The errors are ErrAlone and ErrDeleted.
	Owner(ctx context.Context, session [16]byte, first string, until time.Time) (owner string, err error)

	// Alive reports whether a member has a valid lease, as far as this process knows.
	Alive(id string) bool

	// Forward sends the request to a member and copies its answer to w as it arrives. body is the
	// request's body if it has been read, else nil. An error means that nothing was written to w:
	// ErrGone if the member cannot be reached and the request was not sent.
	Forward(w http.ResponseWriter, r *http.Request, body []byte, to string) error

	// DeleteSession records for all members that the client has deleted a session.
	DeleteSession(ctx context.Context, session [16]byte, until time.Time) error

	// Once reports whether no member has called it with this ID before. An ID may be forgotten after
	// until.
	Once(ctx context.Context, id string, until time.Time) (first bool, err error)

	// Enter counts a call of a principal with limits against those of all members. leave must be
	// called when the call has ended; it is nil after an error. The errors are budget.ErrTooFast, with
	// the time to wait, budget.ErrTooMany, and those of the database. other is for requests that are
	// not calls: they count separately, and only by rate.
	Enter(ctx context.Context, principal string, l policy.Limits, other bool) (leave func(), wait time.Duration,
		err error)
}

// hop is the context key of a forwarded request.
type hop struct{}

// WithHop marks a request as forwarded by another member: it is answered here and never forwarded.
func WithHop(ctx context.Context) context.Context { return context.WithValue(ctx, hop{}, true) }

// Hopped reports whether another member has forwarded the request.
func Hopped(ctx context.Context) bool { return ctx.Value(hop{}) != nil }
