package proxy

import (
	"context"
	"errors"

	"junction/proxy/budget"
	"junction/proxy/redact"
	"junction/proxy/schema"
	"junction/proxy/search"
	"junction/upstream"
	"junction/upstream/client"
)

// This file checks the arguments of a tool call against the definition of the tool.

// validate checks a tool call against the tool's definition. It returns nil if the call may be
// made, else the result for the client.
func (s *Core) validate(ctx context.Context, x *Exchange, c *upstream.Call) (_ *Result, err error) {
	if x.target.Tool == nil {
		return nil, nil
	}
	if rejected := s.wrongClass(x); rejected != nil {
		return rejected, nil
	}
	if x.Era == client.EraModern && x.class == search.NoClass { // the header of a call tool names another tool
		if c.Header, err = x.front.Headers(x.Params, x.target.Tool); err != nil {
			return nil, err
		}
		if x.decision.Verdict.Asks() || x.Subject.Ruling(x.target).Reads() {
			c.Header = nil // neither the form nor a condition shows it
		}
	}
	if !x.Subject.Safeguards.Validate {
		return nil, nil
	}
	text, outcome, err := s.checkArguments(ctx, x)
	if text == "" || err != nil {
		return nil, err
	}
	x.Info.Outcome = outcome
	return new(s.toolText(x, text, isError)), nil
}

// checkArguments checks the arguments of a call against the tool's schema. It returns "" if they
// fit, else the text for the model. A call whose arguments cannot be checked is not made.
func (s *Core) checkArguments(ctx context.Context, x *Exchange) (text string, o Outcome, err error) {
	end, err := s.Turn(ctx, x)
	if err != nil {
		return "", "", err
	}
	defer end()
	arguments, err := x.arguments()
	if err != nil {
		return "", "", err
	}
	t := x.target
	var clean func(string) string
	reader := x.reader()
	if reader != nil {
		clean = reader.String
	}
	var problems []string
	if t.Tool.Loose != "" {
		err = s.schemas.Broken(t.Item.Definition.Text(), t.Tool.Loose)
	} else {
		problems, err = s.schemas.Check(ctx, t.Item.Definition.Text(), arguments, checkCost{s, x}, clean)
	}
	if unusable, ok := errors.AsType[*schema.UnusableError](err); ok {
		if unusable.First {
			s.log.Warn("calls of a tool are refused where the policy says validate: its schema cannot be used",
				"upstream", t.Backend.Name(), "name", t.Name, "error", err)
		}
		why := err.Error()
		_, n, err := reader.Text(t.Item.Definition.Text(), redact.Nothing)
		if n > 0 || err != nil || reader.String(why) != why {
			why = "its inputSchema cannot be used. The reason is in Junction's log, because the policy redacts " +
				"the schema"
		}
		return "The tool " + t.Exposed + " was not called: the policy requires checked arguments (validate), and " +
			why + ".", Denied, nil
	}
	if limit, ok := errors.AsType[*schema.LimitError](err); ok {
		return "The tool " + t.Exposed + " was not called: the policy requires checked arguments (validate), and " +
			"the check would exceed a limit: " + limit.Error() + ". Send less in one call.", Limited, nil
	}
	if err != nil || len(problems) == 0 {
		return "", "", OveruseError(err)
	}
	return schema.Invalid(t.Exposed, problems), Invalid, nil
}

// largeMessage is the size in bytes from which on messages are read and checked in turns (package
// budget): without, many of them would keep the processors from everything else for some
// milliseconds each.
const largeMessage = 64 << 10

// Turn waits until it is the caller's turn to read or check a large message. x must have its Size. The
// caller of Turn must call end before it waits for anything. For other messages Turn does nothing.
func (s *Core) Turn(ctx context.Context, x *Exchange) (end func(), err error) {
	if x.Size < largeMessage {
		return func() {}, nil
	}
	return s.turns.Turn(ctx, x.Grant.Account)
}

// checkCost has the caller of x pay for a check.
type checkCost struct {
	s *Core
	x *Exchange
}

// Hold implements schema.Cost.
func (c checkCost) Hold(n int64) (release func(), err error) {
	if err := c.x.Grant.Reserve(budget.Bytes, n); err != nil {
		return nil, err
	}
	return func() { c.x.Grant.Give(budget.Bytes, n) }, nil
}

// Turn implements schema.Cost.
func (c checkCost) Turn(ctx context.Context) (end func(), err error) {
	if c.x.Size >= largeMessage { // checkArguments has it
		return func() {}, nil
	}
	return c.s.turns.Turn(ctx, c.x.Grant.Account)
}
