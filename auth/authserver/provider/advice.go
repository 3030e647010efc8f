package provider

import (
	"context"
	"errors"
	"strings"

	"github.com/coreos/go-oidc/v3/oidc"

	"junction/auth/fetch"
	"junction/upstream/prose"
)

// usersChoice are the error codes with which a provider reports a decision of the user, or that the user has
// to do something (RFC 6749, section 4.1.2.1; OpenID Connect Core, section 3.1.2.6). The operator need do
// nothing.
var usersChoice = map[string]bool{"access_denied": true, "login_required": true, "consent_required": true,
	"interaction_required": true, "account_selection_required": true}

// Advice returns what the operator can do about a sign-in that failed; "" if the user has decided it,
// or if the error says it.
func (p *Provider) Advice(err error) string {
	no, answered := errors.AsType[*Error](err)
	if !answered {
		_, undiscovered := errors.AsType[*undiscoveredError](err)
		_, noKeys := errors.AsType[*noKeysError](err)
		if undiscovered || noKeys {
			return ""
		}
		return fetch.Advice(err)
	}
	switch no.code {
	case "invalid_client", "unauthorized_client":
		return "compare client_id and client_secret of the identity provider " + p.ID + " with the registration there"
	case "invalid_grant":
		return "compare client_id and the redirect URI " + p.redirect + " with the registration at the provider"
	case "invalid_scope":
		return "remove the scopes that the provider does not have: scopes of the identity provider " + p.ID
	case "missing_id_token":
		return "add openid to scopes of the identity provider " + p.ID
	case "invalid_id_token":
		if _, expired := errors.AsType[*oidc.TokenExpiredError](err); expired || errors.Is(err, errNotYet) {
			return "compare the clock of this machine with the provider's"
		}
		return "compare issuer and client_id of the identity provider " + p.ID + " with the registration there"
	case "userinfo_refused":
		return "compare scopes of the identity provider " + p.ID + " with those that its userinfo endpoint needs"
	case "missing_iss", "wrong_iss":
		return "the answer may come from another issuer: compare issuer of the identity provider " + p.ID +
			" with what the provider calls itself"
	case "temporarily_unavailable", "server_error":
		return "read the provider's log, and try again"
	}
	if usersChoice[no.code] {
		return ""
	}
	return "read the provider's log, and run: junction auth doctor"
}

// Says returns why a user is not signed in, for the user.
func (p *Provider) Says(no *Error) string {
	switch name := p.Label(); {
	case no.ours:
		return "This server rejected the answer of " + name + ": " + no.code + ". " + operatorsTurn
	case no.code == "access_denied":
		return name + " answered: access_denied. You have cancelled the sign-in there, or " + name +
			" does not let this account use this server."
	case usersChoice[no.code]:
		return name + " answered: " + no.code + ". Sign in there, and try again."
	case no.code == "temporarily_unavailable", no.code == "server_error":
		return name + " answered: " + no.code + ". Try again in a moment."
	default:
		return name + " answered: " + no.code + ". " + operatorsTurn
	}
}

// operatorsTurn tells the user that trying again does not help.
const operatorsTurn = "You cannot correct this yourself. " +
	"Tell the operator of this server the number of the request below."

// undiscoveredError is an error of the metadata of a provider, with what the operator can do about it.
type undiscoveredError struct {
	issuer string
	err    error
}

// Error returns one line: the body of a page may be part of the error.
func (e *undiscoveredError) Error() string {
	todo := fetch.Advice(e.err)
	_, renamed := errors.AsType[*oidc.IssuerMismatchError](e.err)
	switch {
	case todo != "":
	case renamed:
		todo = "write into issuer what the provider calls itself, to the letter"
	case errors.Is(e.err, context.DeadlineExceeded):
		todo = "see that this machine reaches the provider"
	default:
		todo = "check issuer; this command compares it with the provider: junction auth doctor"
	}
	line := strings.Join(strings.Fields(e.err.Error()), " ")
	return "discover " + e.issuer + ": " + prose.ASCII(line, 400) + "; " + todo
}

func (e *undiscoveredError) Unwrap() error { return e.err }
