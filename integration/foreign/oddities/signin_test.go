package oddities

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"sync"

	"junction/auth/authtest"
)

// This file is the authorization server without faults, which signs in without a person.

// clientSecret is the secret of each client that has one.
const clientSecret = "canary-odd-secret"

// grants are what an authorization server has given.
type grants struct {
	mu         sync.Mutex
	challenges map[string]string // by code
	tokens     map[string]bool
}

func newGrants() *grants {
	authtest.Secret("the secret of a client", clientSecret)
	return &grants{challenges: map[string]string{}, tokens: map[string]bool{}}
}

// good reports whether a token of access was given.
func (g *grants) good(token string) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.tokens[token]
}

// code returns a new code for a PKCE challenge.
func (g *grants) code(challenge string) string {
	g.mu.Lock()
	defer g.mu.Unlock()
	code := fmt.Sprintf("code-%d", len(g.challenges)+1)
	g.challenges[code] = challenge
	return code
}

// redeem reports whether a code was given for the challenge of a verifier. It counts once.
func (g *grants) redeem(code, verifier string) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	sum := sha256.Sum256([]byte(verifier))
	challenge := g.challenges[code]
	delete(g.challenges, code)
	return challenge != "" && challenge == base64.RawURLEncoding.EncodeToString(sum[:])
}

// token returns a new token of access.
func (g *grants) token() string {
	g.mu.Lock()
	defer g.mu.Unlock()
	token := fmt.Sprintf("canary-odd-%p-%d", g, len(g.tokens)+1)
	authtest.Secret("a token of an odd server", token)
	g.tokens[token] = true
	return token
}

// readForm reads what rules ask of requests to an authorization server.
func (s *server) readForm(a *ask, q *http.Request, text []byte) {
	form := q.URL.Query()
	if q.Method == http.MethodPost {
		form, _ = url.ParseQuery(string(text)) // what cannot be read is not there
		_, _, basic := q.BasicAuth()
		_, post := form["client_secret"]
		a.values["auth"] = map[bool]string{true: "basic", false: "none"}[basic]
		if post {
			a.values["auth"] = map[bool]string{true: "both", false: "post"}[basic]
		}
	}
	for name, values := range form {
		a.values["form."+name] = strings.Join(values, " ")
	}
	a.values["body"], a.values["state"], a.values["redirect"] = string(text), form.Get("state"), form.Get("redirect_uri")
}

// plain answers a request of HTTP that has no message.
func (s *server) plain(a *ask, p *reply) *reply {
	authority := map[string]string{"here": "url", "apart": "as", "named": "as"}[s.row.SignIn]
	issuer, json := s.origin[authority], func(status int, format string, args ...any) *reply {
		p.status = status
		p.headers.Set("Content-Type", "application/json")
		p.message = fmt.Sprintf(format, args...)
		return p
	}
	if a.values["wire"] == wireSSE && a.on[0] == "GET /sse" {
		return p
	}
	if a.values["path"] == "/mcp" && a.values["origin"] == "url" {
		if a.values["method"] != http.MethodDelete {
			p.status = http.StatusMethodNotAllowed
		}
		return p
	}
	switch where := a.values["method"] + " " + a.values["path"]; {
	case s.row.SignIn == "":
	case a.values["origin"] == "url" && where == "GET /.well-known/oauth-protected-resource/mcp":
		return json(http.StatusOK, `{"resource":%q,"authorization_servers":[%q]}`, s.mcpURL(), issuer)
	case a.values["origin"] != authority && a.values["origin"] != "other":
	case where == "GET /.well-known/oauth-authorization-server" && a.values["origin"] == authority:
		return json(http.StatusOK, "%s", s.metadata(issuer))
	case where == "POST /register":
		return json(http.StatusCreated, "%s", registration(a.values["body"]))
	case where == "GET /authorize":
		return s.authorize(a, p)
	case where == "POST /token":
		if a.values["form.grant_type"] == "authorization_code" &&
			!s.grants.redeem(a.values["form.code"], a.values["form.code_verifier"]) {
			return json(http.StatusBadRequest, `{"error":"invalid_grant"}`)
		}
		a.values["granted"] = s.grants.token()
		return json(http.StatusOK, `{"access_token":%q,"refresh_token":"canary-odd-refresh",`+
			`"token_type":"Bearer","expires_in":3600}`, a.values["granted"])
	}
	p.status = http.StatusNotFound
	return p
}

// metadata is the document of an authorization server.
func (s *server) metadata(issuer string) string {
	return fmt.Sprintf(`{"issuer":%[1]q,"authorization_endpoint":"%[1]s/authorize","token_endpoint":"%[1]s/token",`+
		`"registration_endpoint":"%[1]s/register","response_types_supported":["code"],`+
		`"grant_types_supported":["authorization_code","refresh_token"],`+
		`"code_challenge_methods_supported":["S256"],"token_endpoint_auth_methods_supported":["none"]}`, issuer)
}

// registration answers what was sent, with an id, and a secret for a client that asks for one.
func registration(sent string) string {
	var members map[string]json.RawMessage
	if json.Unmarshal([]byte(sent), &members) != nil || members == nil {
		members = map[string]json.RawMessage{}
	}
	members["client_id"] = json.RawMessage(`"c"`)
	if method := string(members["token_endpoint_auth_method"]); strings.HasPrefix(method, `"client_secret_`) {
		members["client_secret"] = json.RawMessage(`"` + clientSecret + `"`)
	}
	text, _ := json.Marshal(members) // they were read from JSON
	return string(text)
}

// authorize sends the browser back with a code.
func (s *server) authorize(a *ask, p *reply) *reply {
	back, err := url.Parse(a.values["redirect"])
	if err != nil || a.values["redirect"] == "" || a.values["form.code_challenge_method"] != "S256" {
		p.status = http.StatusBadRequest
		return p
	}
	a.values["code"] = s.grants.code(a.values["form.code_challenge"])
	query := back.Query()
	query.Set("code", a.values["code"])
	query.Set("state", a.values["state"])
	back.RawQuery = query.Encode()
	p.status = http.StatusFound
	p.headers.Set("Location", back.String())
	return p
}
