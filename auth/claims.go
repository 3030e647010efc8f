package auth

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// claims are the claims of a token. Names are case-sensitive.
type claims map[string]json.RawMessage

// claimRules are what the claims of a token must be for a configuration entry.
type claimRules struct {
	TokenRules                  // with canonical audiences, and with defaults
	skew       time.Duration    // tolerated clock difference
	print      string           // fingerprint of the entry
	now        func() time.Time // of the program
}

func newRules(r TokenRules, print string, now func() time.Time) claimRules {
	r.AudienceClaim, r.Audiences = cmp.Or(r.AudienceClaim, "aud"), slices.Clone(r.Audiences)
	for i, a := range r.Audiences {
		r.Audiences[i] = canonical(a)
	}
	return claimRules{TokenRules: r, print: print, now: now}
}

var (
	errExpired           = fmt.Errorf("%w: it is expired", ErrInvalidToken)
	errEarly             = fmt.Errorf("%w: it is not valid yet", ErrInvalidToken)
	errSubject           = fmt.Errorf("%w: it has no valid subject", ErrInvalidToken)
	errSenderConstrained = fmt.Errorf("%w: sender-constrained tokens are not supported", ErrInvalidToken)
)

// principal returns the principal of a token with these claims.
func (j *claimRules) principal(c claims, hash Hash) (*Principal, error) {
	if _, bound := c["cnf"]; bound { // requires a proof of possession, which is not supported
		return nil, errSenderConstrained
	}
	expires, err := j.times(c)
	if err != nil {
		return nil, err
	}
	p := &Principal{Kind: KindUser, Issuer: j.Issuer, Expires: expires, hash: hash, source: j.print}
	if p.Resources, err = j.resources(c); err != nil {
		return nil, err
	}
	if err := j.required(c); err != nil {
		return nil, err
	}
	if p.Scopes, err = c.scopes(); err != nil {
		return nil, err
	}
	if slices.ContainsFunc(j.RequiredScopes, func(s string) bool { return !slices.Contains(p.Scopes, s) }) {
		return nil, &ScopeError{j.RequiredScopes}
	}
	if p.Groups, err = c.at(j.Claims.groups()); err != nil {
		return nil, err
	}
	subject, err := c.at(j.Claims.subject())
	if err != nil || len(subject) > 1 {
		return nil, errSubject
	}
	// RFC 9068, OpenID Connect, and two that came before them
	for _, name := range []string{"client_id", "azp", "cid", "appid"} {
		if p.OAuthClient == "" {
			p.OAuthClient, _ = c.text(name)
		}
	}
	if len(subject) == 1 {
		p.User = subject[0]
	} else {
		p.User = p.OAuthClient // RFC 7662 needs no subject
	}
	if !printable(p.User) || !printable(p.OAuthClient) && p.OAuthClient != "" {
		return nil, errSubject
	}
	if application, _ := c.text("idtyp"); p.User == p.OAuthClient || application == "app" {
		// RFC 9068, section 5; Entra
		p.Kind = KindService
	}
	p.ID = signedInID(p.Kind, j.Issuer, p.User)
	if email, _ := c.text("email"); string(c["email_verified"]) == "true" || string(c["email_verified"]) == `"true"` {
		p.Email = email
	}
	if name, _ := c.text("name"); p.Kind == KindUser && printable(name) {
		p.Name = name
	}
	p.Grant, _ = c.text("sid")
	return p, nil
}

// maxSubject is twice the length that OpenID Connect allows for a subject.
const maxSubject = 512

// printable reports whether a name can be part of an ID.
func printable(s string) bool {
	return s != "" && len(s) <= maxSubject && utf8.ValidString(s) &&
		!strings.ContainsFunc(s, func(r rune) bool { return !unicode.IsPrint(r) })
}

// UserID returns the ID of the principal with a subject at an issuer, as in logs and the audit. A
// user has the same ID with a token of the issuer and with one of our authorization server.
func UserID(issuer, subject string) string { return signedInID(KindUser, issuer, subject) }

// IsUserID reports whether the ID of a principal is the ID of a user.
func IsUserID(id string) bool { return strings.HasPrefix(id, string(KindUser)+":") }

// signedInID returns the ID of a user or service. It contains a short hash of the issuer: issuers
// are configured, so that collisions cannot be searched for.
func signedInID(kind Kind, issuer, subject string) string {
	sum := sha256.Sum256([]byte(issuer))
	return string(kind) + ":" + hex.EncodeToString(sum[:8]) + ":" + subject
}

// times checks exp and nbf, and returns when a token expires; zero means never.
func (j *claimRules) times(c claims) (time.Time, error) {
	now := j.now()
	exp, there, err := c.time("exp")
	if err != nil {
		return time.Time{}, err
	}
	if there {
		if exp = exp.Add(j.skew); !now.Before(exp) {
			return time.Time{}, errExpired
		}
	}
	nbf, _, err := c.time("nbf")
	if err != nil {
		return time.Time{}, err
	}
	if now.Add(j.skew).Before(nbf) {
		return time.Time{}, errEarly
	}
	return exp, nil
}

// resources returns the accepted audiences of a token.
func (j *claimRules) resources(c claims) ([]string, error) {
	named, err := list(c[j.AudienceClaim])
	if err != nil {
		return nil, fmt.Errorf("%w: its claim %s is not a string", ErrInvalidToken, j.AudienceClaim)
	}
	var ours []string
	for _, a := range named {
		if a = canonical(a); a != "" && slices.Contains(j.Audiences, a) {
			ours = append(ours, a)
		}
	}
	switch {
	case len(named) == 0:
		return nil, fmt.Errorf("%w: it has no audience; this server accepts %s", ErrInvalidToken,
			strings.Join(j.Audiences, " "))
	case len(ours) == 0:
		return nil, fmt.Errorf("%w: its audience is %s; this server accepts %s", ErrInvalidToken,
			strings.Join(named, " "),
			strings.Join(j.Audiences, " "))
	}
	return ours, nil
}

// required checks required_claims: each claim must have the value, or contain it.
func (j *claimRules) required(c claims) error {
	for name, want := range j.RequiredClaims {
		value := c[name]
		values, err := list(value)
		if err != nil { // numbers and booleans are compared as JSON text
			values = []string{string(value)}
		}
		if !slices.Contains(values, want) {
			return fmt.Errorf("%w: its claim %s does not have the required value", ErrInvalidToken, name)
		}
	}
	return nil
}

// text returns a claim that is a string; "" if it is absent.
func (c claims) text(name string) (string, error) {
	values, err := list(c[name])
	if err != nil || len(values) > 1 {
		return "", errNoText
	}
	return strings.Join(values, ""), nil
}

// time returns a claim that is a number of seconds.
func (c claims) time(name string) (time.Time, bool, error) {
	v, there := c[name]
	if !there {
		return time.Time{}, false, nil
	}
	var seconds float64
	if err := json.Unmarshal(v, &seconds); err != nil || string(v) == "null" || math.Abs(seconds) > 1<<40 {
		return time.Time{}, false, fmt.Errorf("%w: its claim %s is not a time", ErrInvalidToken, name)
	}
	whole, part := math.Modf(seconds)
	return time.Unix(int64(whole), int64(part*1e9)), true, nil
}

// scopes returns the scopes of the claims scope and scp, which are lists or strings with spaces.
func (c claims) scopes() ([]string, error) {
	var all []string
	for _, name := range []string{"scope", "scp"} {
		values, err := list(c[name])
		if err != nil {
			return nil, fmt.Errorf("%w: its claim %s is not a string", ErrInvalidToken, name)
		}
		for _, v := range values {
			all = append(all, strings.Fields(v)...)
		}
	}
	slices.Sort(all)
	return slices.Compact(all), nil
}

// at returns the strings at a path of claims; none if the path does not exist.
func (c claims) at(path []string) ([]string, error) {
	for i, name := range path {
		v, there := c[name]
		if !there {
			return nil, nil
		}
		if i == len(path)-1 {
			values, err := list(v)
			if err != nil {
				return nil, fmt.Errorf("%w: its claim %s is not a string", ErrInvalidToken, strings.Join(path, " / "))
			}
			return values, nil
		}
		if c = nil; json.Unmarshal(v, &c) != nil {
			return nil, fmt.Errorf("%w: its claim %s is not an object", ErrInvalidToken,
				strings.Join(path[:i+1], " / "))
		}
	}
	return nil, nil
}

var errNoText = errors.New("not a string")

// list reads a string or a list of strings; none if it is absent or null.
func list(v json.RawMessage) ([]string, error) {
	if len(v) == 0 || string(v) == "null" {
		return nil, nil
	}
	var s string
	if v[0] == '"' && json.Unmarshal(v, &s) == nil {
		return []string{s}, nil
	}
	var all []*string
	if v[0] != '[' || json.Unmarshal(v, &all) != nil || slices.Contains(all, nil) {
		return nil, errNoText
	}
	var values []string
	for _, s := range all {
		values = append(values, *s)
	}
	return values, nil
}
