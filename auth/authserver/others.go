package authserver

import (
	"fmt"
	"slices"
	"strings"
)

// This file is about a change of the section auth.oauth that is rolled out process by process. While the
// processes differ, none ends what the file of another one allows, and none offers what another one does not
// accept yet.

// undecidedError means that this process would refuse what another process may accept, because their
// configurations differ. The client tries again later, and keeps its tokens.
type undecidedError struct{ key string }

func (e *undecidedError) Error() string {
	return fmt.Sprintf("the configurations of the replicas differ in %s, and by that of this process the request is "+
		"refused; it is answered when all have the same", e.key)
}

// The keys of entries that processes may lack.
const (
	keyProviders = "auth.oauth.identity_providers"
	keyStatic    = "auth.oauth.clients.static"
	keyClients   = "auth.oauth.clients"
	keyScopes    = "auth.scope_capabilities"
)

// decided returns an *undecidedError if another process has another value of a key.
func (srv *Server) decided(key string) error {
	if srv.others != nil && srv.others.Differs(key) {
		return &undecidedError{key}
	}
	return nil
}

// offered reports whether all processes accept an entry of a key.
func (srv *Server) offered(key, name string) bool {
	return srv.others == nil || !srv.others.Lacks(key+"."+name)
}

// offeredScopes returns the scopes that this server grants, without those that another process lacks.
func (srv *Server) offeredScopes() []string {
	return slices.DeleteFunc(slices.Clone(srv.scopes), func(scope string) bool {
		return !slices.Contains(scopes, scope) && !srv.offered(keyScopes, scope)
	})
}

// choices returns the providers that users can choose. It is an error if each is one that another process
// lacks.
func (srv *Server) choices() (list []choice, err error) {
	var lacked []string
	for _, p := range srv.providers {
		if srv.offered(keyProviders, p.ID) {
			list = append(list, choice{p.ID, p.Label()})
		} else {
			lacked = append(lacked, keyProviders+"."+p.ID)
		}
	}
	if len(list) == 0 && len(lacked) > 0 {
		return nil, &undecidedError{strings.Join(lacked, ", ")}
	}
	return list, nil
}
