package proxy

import (
	"junction/policy"
	"junction/upstream"
	"junction/upstream/client"
	"junction/upstream/raw"
)

// Sent is a call of a client that another member has sent, because this process has the state of the server. That
// member has judged the call, asked the user, and does so no more while the call waits here for its server. Sent
// implements upstream.Guard.
type Sent struct {
	X      *Exchange // of the request of the other member, with the credentials of the client
	Item   policy.Item
	Asked  bool   // the user has approved the call
	Name   string // of the item, for the client
	Params raw.Object
}

// SentOf returns what another member must know of the call of an exchange.
func SentOf(x *Exchange) Sent {
	s := Sent{Asked: x.decision.Verdict.Asks(), Name: x.Info.Name}
	if x.target != nil {
		s.Item, s.Name = x.target.PolicyItem(), x.target.Exposed
	}
	return s
}

// Still implements upstream.Guard. It returns why this process does not permit the call: its file may have changed
// while the call has waited, and may differ from that of the other member.
func (s *Sent) Still() error {
	x := s.X
	now := x.core.snapshot.Load()
	caller := now.Adopt(x.Caller)
	switch {
	case !now.Config.Guard.Still(x.Principal):
		return errRejected
	case caller.Subject == nil:
		return s.unknown()
	}
	if s.Item.Upstream == "" { // of a version that does not send it
		return nil
	}
	ruling, arguments := caller.Subject.Rights.Bind(s.Item), raw.Object{}
	if ruling.Reads() {
		var err error
		if arguments, err = argumentsOf(s.Params); err != nil {
			return err
		}
	}
	d, err := ruling.Decide(arguments)
	switch {
	case err != nil:
		return err
	case d.Scopes != "":
		return x.stepUp(d.Scopes)
	case d.Verdict.Denies():
		return s.unknown()
	case d.Verdict.Asks() && !s.Asked:
		return errAsksNow
	}
	return nil
}

// unknown returns the error for an item that does not exist for the caller.
func (s *Sent) unknown() error {
	part := upstream.PartTools
	switch s.Item.Kind {
	case policy.Prompt:
		part = upstream.PartPrompts
		fallthrough
	case policy.Tool:
		return unknownNamed(part, s.Name)
	}
	return unknownResource(client.EraModern, s.Name)
}
