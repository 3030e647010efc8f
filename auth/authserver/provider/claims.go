package provider

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"
	"unicode/utf8"
)

// Identity is a signed-in user according to the provider.
type Identity struct {
	Issuer, Subject string
	Sub, SID        string // claims by which the provider ends sessions; SID may be ""
	Email           string // "" unless the provider has verified it
	Display         string // as the provider sent it
	Groups          []string
	// Lists are the claims that another rule for the groups (claims.groups) could name, by ListKey. Whole states
	// that a claim which is not among them is absent.
	Lists map[string][]string
	Whole bool
}

const (
	deepestList = 4        // names in the path of a claim
	mostLists   = 16 << 10 // of Identity.Lists, in bytes
)

// ListKey returns the key of a path of claim names in Identity.Lists.
func ListKey(path []string) string {
	parts := make([]string, len(path))
	for i, name := range path {
		parts[i] = url.PathEscape(name)
	}
	return strings.Join(parts, "/")
}

// ofTheToken are claims that are about the token or name the user: they are no groups.
var ofTheToken = []string{"iss", "sub", "aud", "exp", "iat", "nbf", "nonce", "auth_time", "acr", "azp", "at_hash",
	"c_hash", "s_hash", "jti", "sid", "name", "given_name", "family_name", "middle_name",
	"nickname", "preferred_username", "profile", "picture", "website", "email", "email_verified",
	"gender", "birthdate", "zoneinfo", "locale", "phone_number", "phone_number_verified",
	"address", "updated_at"}

// listed adds the claims below a path to the lists, while there is room.
func (id *Identity) listed(claims map[string]any, path []string, room *int) {
	for _, name := range slices.Sorted(maps.Keys(claims)) {
		at := append(slices.Clip(path), name)
		switch inner, is := claims[name].(map[string]any); {
		case len(path) == 0 && slices.Contains(ofTheToken, name):
		case is && len(at) < deepestList:
			id.listed(inner, at, room)
		case is:
			id.Whole = false
		default:
			list, ok := texts(claims[name])
			size := len(name)
			for _, text := range list {
				size += len(text)
			}
			if *room -= size; !ok || *room < 0 {
				*room, id.Whole = *room+size, false
				continue
			}
			id.Lists[ListKey(at)] = list
		}
	}
}

// person makes an Identity of claims. The error wraps ErrRules if the configuration rejects the
// user.
func (p *Provider) person(claims map[string]any) (Identity, error) {
	id, room := Identity{Issuer: p.Issuer, Lists: map[string][]string{}, Whole: true}, mostLists
	id.listed(claims, nil, &room)
	id.Sub, id.SID = storableClaim(claims["sub"]), storableClaim(claims["sid"])
	var parts []string
	for _, name := range p.SubjectClaims {
		s, _ := claims[name].(string)
		if s == "" {
			return Identity{}, fmt.Errorf("%w: the provider returned no claim %s", ErrRules, name)
		}
		parts = append(parts, url.PathEscape(s))
	}
	if id.Subject = strings.Join(parts, "/"); len(parts) == 1 {
		id.Subject, _ = claims[p.SubjectClaims[0]].(string)
	}
	address, _ := claims["email"].(string)
	if verified(claims["email_verified"]) {
		id.Email = strings.ToLower(address)
	}
	for _, name := range []string{"name", "preferred_username", "email"} {
		if id.Display, _ = claims[name].(string); id.Display != "" {
			break
		}
	}
	if groups, there := at(claims, p.Claims.Groups); there {
		list, ok := texts(groups)
		if !ok {
			return Identity{}, fmt.Errorf("%w: the groups claim is not a list of strings", ErrRules)
		}
		id.Groups = list
	}
	for name, want := range p.RequiredClaims {
		got, _ := texts(claims[name])
		if !slices.ContainsFunc(got, func(s string) bool { return slices.Contains(want, s) }) {
			return Identity{}, fmt.Errorf("%w: the claim %s has no value of required_claims", ErrRules, name)
		}
	}
	if len(p.EmailDomains) > 0 {
		_, domain, _ := strings.Cut(id.Email, "@")
		if !slices.ContainsFunc(p.EmailDomains,
			func(d string) bool { return domain != "" && strings.EqualFold(d, domain) }) {
			return Identity{}, fmt.Errorf("%w: no verified e-mail address in email_domains", ErrRules)
		}
	}
	return id, nil
}

// storableClaim returns a claim that a logout token may name, "" if it is none.
func storableClaim(v any) string {
	s, _ := v.(string)
	if len(s) > maxLogoutText || !utf8.ValidString(s) || strings.ContainsRune(s, 0) {
		return ""
	}
	return s
}

// verified reads email_verified, which some providers send as a string.
func verified(v any) bool { return v == true || v == "true" }

// at returns the value at a path of claim names.
func at(claims map[string]any, path []string) (any, bool) {
	var v any = claims
	for _, name := range path {
		m, ok := v.(map[string]any)
		if !ok {
			return nil, false
		}
		if v, ok = m[name]; !ok {
			return nil, false
		}
	}
	return v, v != nil
}

// texts reads a string or a list of strings. A boolean or number is read as its JSON text.
func texts(v any) ([]string, bool) {
	switch v := v.(type) {
	case string:
		return []string{v}, true
	case bool, json.Number:
		return []string{fmt.Sprint(v)}, true
	case []any:
		list := make([]string, 0, len(v))
		for _, e := range v {
			s, ok := e.(string)
			if !ok {
				return nil, false
			}
			list = append(list, s)
		}
		return list, true
	}
	return nil, false
}
