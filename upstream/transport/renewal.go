package transport

import (
	"net/http"
	"time"

	"junction/upstream/jsonrpc"
)

// This file tells a refused token from a lost session of the legacy era, in which many servers answer
// 401, too. In a session, a refused token is renewed once. If the server refuses the renewed one, the
// owner of the transport finds out whether the session is lost. Outside of a session, the sign-in ends.

// freshToken is how long a token counts as just renewed: in a session it is not renewed again.
const freshToken = 30 * time.Second

// renewal is a token that a server got after it had refused another one.
type renewal struct {
	token string
	at    time.Time
}

// renewedNow reports whether the token was renewed just before.
func (o *origin) renewedNow(token string) bool {
	r := o.renewed.Load()
	return r != nil && r.token == token && time.Since(r.at) < freshToken
}

// inSession reports whether a request belongs to a session of the legacy era, about which the owner of
// the transport can find out more.
func (o *origin) inSession(header http.Header, m *jsonrpc.Message) bool {
	return o.doubted != nil && (len(header[headerSession]) > 0 || o.posts != nil && m != nil)
}
