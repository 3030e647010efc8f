package auth

import "strings"

// Others compares the configuration of this process with those of the other processes over the same
// database, while a change is rolled out. What one file allows, a process with another file refuses for the
// time being (503), and does not end. A nil Others means that there are no others.
type Others interface {
	// Differs reports whether another process has another value of a key, of a key below it, or lacks the
	// entry that it belongs to.
	Differs(key string) bool
	// Lacks reports whether another process lacks an entry, such as
	// auth.oauth.identity_providers.sso.
	Lacks(entry string) bool
}

// Among sets the other processes over the same database. Call it before the first request.
func (g *Guard) Among(others Others) {
	if g.others = others; g.Resources != nil {
		g.Resources.others = others
	}
}

// undecided returns the key because of which another process may accept a token that this one has refused; ""
// if none may. Only the configuration decides about API keys, and about tokens of other issuers.
func (g *Guard) undecided(token string) string {
	var keys []string
	switch {
	case g.others == nil || strings.HasPrefix(token, ownPrefix):
	case strings.HasPrefix(token, keyPrefix):
		keys = []string{"auth.api_keys"}
	case !strings.HasPrefix(token, tokenPrefix):
		keys = []string{"auth.jwt", "auth.introspection"}
	}
	for _, key := range keys {
		if g.others.Differs(key) {
			return key
		}
	}
	return ""
}
