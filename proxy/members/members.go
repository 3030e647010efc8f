// Package members declares what a proxy needs of the other processes that serve the same endpoints
// over one database (its members; users read replicas), so that any of them can be sent any
// request. Package cmd/junction/base/replicas implements it. A proxy without an implementation runs
// alone.
//
// Each legacy session and each parked call is in the memory of one member, its owner. The session
// ID and the requestState name the owner, sealed. If another member gets such a request, it
// forwards the whole request to the owner, once: with its bytes, its credentials and the client's
// address. The owner authenticates the request itself, so a member cannot act for a user. It judges the
// request by its own policies, and by those of the member that has forwarded it, if these differ (Rules).
//
// The state of a server that declares some (stateful) is in the child process or session of one member,
// for each principal or for all. Another member keeps the request and sends only the call of the server
// to that one (Send), with the credentials of the client, for the same reason.
package members

import (
	"context"
	"errors"
	"io"
	"net/http"
	"time"

	"junction/policy"
	"junction/proxy/budget"
)

// Errors of Members. They are matched with errors.Is.
var (
	// ErrGone means that the member did not get the request, or did not handle it: it has ended, it
	// has lost its lease, or it cannot be reached. Await tells which.
	ErrGone = errors.New("the process that had it does not answer")
	// ErrUnreachable means that the member holds its lease, but this process cannot connect to it.
	// Nothing was executed, and nothing is lost: the client may send the request again.
	ErrUnreachable = errors.New("the process that has it cannot be reached")
	// ErrReleased means that the member is stopping and has given up the session, which has no call
	// in flight. It did not handle the request. It never becomes the owner of the session again.
	ErrReleased = errors.New("the process that had the session is stopping")
	// ErrAlone means that this process is no member at the moment: it has no connection to the
	// database, or must not join. It must not answer requests of sessions then.
	ErrAlone = errors.New("this process has no connection to the others")
	// ErrRefused means that a member has refused a message of Send, and has executed nothing.
	ErrRefused = errors.New("the process that has it refuses the request")
	// ErrDeleted means that the client has deleted the session.
	ErrDeleted = errors.New("the session was deleted")
)

// Members are the processes over one database, with this one. All methods may be called
// concurrently. Methods with a context may ask the database; the others do not block.
type Members interface {
	// Self returns the ID of this process. A process gets a new ID when it starts, and after
	// another member has deleted its lease. Self returns "" while this process is no member.
	Self() string

	// Last returns the ID of this process also while it is no member because the database does not answer. It
	// returns "" before the process has joined, and after another member has deleted its lease. With an ID, the
	// process may answer requests that need nothing which members share.
	Last() string

	// Owner returns the ID of the member that has a session. first is the member that created the
	// session. It is the owner while it holds its lease and has not released the session; the database
	// is not queried. After its end exactly one other member becomes the owner, usually the first one
	// that calls Owner. released is a member for which Forward has returned ErrReleased for this
	// session, or "": it counts as ended. until is the time when the session ID expires. The errors
	// are ErrAlone and ErrDeleted.
	Owner(ctx context.Context, session [16]byte, first, released string, until time.Time) (owner string, err error)

	// Ended reports whether a member has ended for good: its lease has expired, and it cannot get
	// the lease back. The error is ErrAlone.
	Ended(ctx context.Context, id string) (bool, error)

	// Foreign reports whether a member belongs to another database than this process, and has made a
	// session or a call there at a time (since) when this process was already a member here. Then both
	// processes get requests of the same clients by mistake. It logs that.
	Foreign(id string, since time.Time) bool

	// Await must be called after Forward has returned ErrGone. It returns nil when it is worth while
	// to look for the owner again: the lease of the member has ended, or the member has renewed it, or
	// it answers again. If Forward fails then, it returns ErrUnreachable. Await returns the error of ctx.
	Await(ctx context.Context, id string) error

	// Forward sends the request to a member and copies its response to w as it arrives. body is the
	// request's body if it has been read, else nil: then the request has a Content-Length, and its
	// body is sent as it arrives. w limits the time of each write (relayWriter in proxy/front/relay.go).
	// After an error nothing was written to w. ErrGone means in addition that the body can be sent
	// again; ErrUnreachable, ErrReleased and ErrAlone only that the request was not handled. After any
	// other error the request may have been executed. Forward does not use body after it has returned.
	Forward(w http.ResponseWriter, r *http.Request, body []byte, to string) error

	// Deliver sends an answer of a client to a question to the other members, one after the other, until one has
	// the question, and copies its response to w. It is for a process that is no member because the database does
	// not answer: these members may be none either. An error means that none has the question.
	Deliver(w http.ResponseWriter, r *http.Request, body []byte) error

	// State returns the ID of the member that has the state of a server for some callers: key identifies
	// both. The first member that calls State becomes it, and so does the next one after its end. lost
	// reports that this call has replaced a member that has ended or has given the state up (released,
	// as for Owner): it is true once. The database is queried only if no living owner is known.
	State(ctx context.Context, key [16]byte, released string) (owner string, lost bool, err error)
	// FreeState records that this process has nothing left of a state, so that any member may begin it.
	FreeState(ctx context.Context, key [16]byte) error
	// Send sends a message about a call to a member, with the credentials of the client's request r, and
	// returns the body of the answer. The message is the value of HeaderCall. The errors are as for
	// Forward, and ErrRefused. The caller must close the body; the end of ctx ends it, too.
	Send(ctx context.Context, r *http.Request, message string, body []byte, to string) (io.ReadCloser, error)

	// DeleteSession records for all members that the client has deleted a session.
	DeleteSession(ctx context.Context, session [16]byte, until time.Time) error

	// Once returns true for the first call with this ID at any member, and false for all later
	// ones. The ID may be forgotten after until.
	Once(ctx context.Context, id string, until time.Time) (first bool, err error)

	// Counter counts against limits that hold for all members together. It can return ErrAlone.
	budget.Counter
}

// HeaderReleased is in the answer of an owner that is stopping and has given up the session of a
// forwarded request, or that does not have the state of a call (ErrReleased). Clients never get such an
// answer.
const HeaderReleased = "Junction-Released"

// HeaderCall is in a request of a member, which is no request of a client: see Members.Send.
const HeaderCall = "Junction-Call"

// forwarded is the context key of a forwarded request.
type forwarded struct{}

// WithForwarded marks a request as forwarded by another member. This process must answer it and not
// forward it again.
func WithForwarded(ctx context.Context) context.Context {
	return context.WithValue(ctx, forwarded{}, true)
}

// rules is the context key of the policies of the member that has forwarded a request.
type rules struct{}

// WithRules marks a request with the policies of the member that has forwarded it, if they differ from those
// of this process: what they deny is denied.
func WithRules(ctx context.Context, p *policy.Policy) context.Context {
	return context.WithValue(ctx, rules{}, p)
}

// Rules returns the policies of the member that has forwarded the request; nil if they do not differ.
func Rules(ctx context.Context) *policy.Policy {
	p, _ := ctx.Value(rules{}).(*policy.Policy)
	return p
}

// Forwarded reports whether another member has forwarded the request.
func Forwarded(ctx context.Context) bool { return ctx.Value(forwarded{}) != nil }
