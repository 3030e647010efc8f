package authserver

import (
	"encoding/json"
	"slices"

	"junction/auth/authserver/provider"
)

// This file has the claims of users in the store. Other processes may have another rule for the groups.

// storedClaims are the claims of an identity that the store keeps. The groups are those by the rule of the process
// that has asked the provider; the other members let each process find those by its own rule.
type storedClaims struct {
	Groups []string `json:"groups,omitempty"`
	// Provider is its ID; "" in a row of a version without the members below.
	Provider string              `json:"provider,omitempty"`
	Rule     []string            `json:"rule,omitempty"` // the path of Groups in the claims
	Lists    map[string][]string `json:"lists,omitempty"`
	Whole    bool                `json:"whole,omitempty"` // as in provider.Identity
}

// claimsOf returns what the store keeps of an identity.
func claimsOf(p *provider.Provider, id provider.Identity) ([]byte, error) {
	return json.Marshal(storedClaims{id.Groups, p.ID, p.Claims.Groups, id.Lists, id.Whole})
}

// groups returns the groups of a user by the rule of this process, and otherwise by the rule of the process that
// has asked the provider: if the row does not tell what this process would have got.
func (srv *Server) groups(claims []byte) []string {
	var c storedClaims
	if json.Unmarshal(claims, &c) != nil {
		return nil
	}
	p := srv.provider(c.Provider)
	if c.Provider == "" || p == nil || slices.Equal(p.Claims.Groups, c.Rule) {
		return c.Groups
	}
	if own, there := c.Lists[provider.ListKey(p.Claims.Groups)]; there {
		return own
	}
	if c.Whole {
		return nil
	}
	return c.Groups
}
