package replicas

import (
	"context"
	"errors"
	"time"

	"junction/policy"
	"junction/proxy/members"
)

type owners struct{}

func (o *owners) returned(time.Time) {}

type inFlight struct{}

var errTodo = errors.New("todo")

func (m *Member) Owner(ctx context.Context, session [16]byte, first string, until time.Time) (string, error) {
	return "", members.ErrAlone
}

func (m *Member) DeleteSession(ctx context.Context, session [16]byte, until time.Time) error {
	return errTodo
}

func (m *Member) Once(ctx context.Context, id string, until time.Time) (bool, error) {
	return false, errTodo
}

func (m *Member) Enter(ctx context.Context, principal string, l policy.Limits, other bool) (
	func(), time.Duration, error) {
	return nil, 0, errTodo
}
