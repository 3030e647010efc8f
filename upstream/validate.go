package upstream

import (
	"fmt"
	"log/slog"
	"maps"
	"net/url"
	"path"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"time"

	"junction/upstream/client"
	"junction/upstream/command"
	"junction/upstream/http1"
	"junction/upstream/loopback"
	"junction/upstream/sandbox"
	"junction/upstream/transport"
	"junction/upstream/yamlread"
)

// Validate returns all mistakes in the entry of the upstream called name, in the order of the fields.
// It opens no files and no connections. It does not check for negative numbers, which the reader of
// the file rejects.
func (c *Config) Validate(name string) []yamlread.Problem {
	var ps []yamlread.Problem
	bad := func(path, format string, args ...any) {
		ps = append(ps, yamlread.Problem{Path: path, Text: fmt.Sprintf(format, args...)})
	}
	if !validName(name) {
		bad("", "the name of an upstream has 1 to 32 of A-Z, a-z, 0-9, _ and -, and does not begin with -")
	} else if Reserved(name) {
		bad("", "MCP reserves the URL /mcp/%s for a document about the server; choose another name", name)
	}
	c.validateKind(bad)
	for _, k := range slices.Sorted(maps.Keys(c.Headers)) {
		if !http1.IsToken(k) {
			bad("headers."+k, "is no HTTP header name")
		} else if !mayName(k, useFixed) {
			bad("headers."+k, "is set by Junction itself; remove it")
		} else if strings.ContainsAny(c.Headers[k], lineBreaks) {
			bad("headers."+k, "has a line break in its value")
		}
	}
	c.validateForwarded(bad)
	if c.Transport.OnlyLegacy() && c.Era.NeedsModern() {
		bad("era", "the %s transport has no modern era; remove one of the two", c.Transport)
	}
	if c.Era.Both() && !c.Questions.Asks() {
		bad("era", "both has no effect with questions: false, because no client is asked; remove one of the two")
	}
	if c.Prefix != nil && *c.Prefix != "" && !validName(*c.Prefix) {
		bad("prefix", "has 1 to 32 of A-Z, a-z, 0-9, _ and -, or is empty for bare names")
	}
	if c.MaxLinks == 1 && c.Kind().Process && !c.keyed() &&
		(c.Isolation.OfCallers() || c.Isolation == IsolationUnset && c.Separate) {
		bad("max_links", "leaves no process for a call, because one process reads the lists for all; write 2 or more, "+
			"or isolation: shared")
	}
	validateCache("cache", c.Cache, bad)
	c.InheritEnv.Validate(bad)
	c.Exec.validate(bad)
	if c.Sandbox != nil {
		c.Sandbox.Validate(bad)
	}
	c.validateFolder(bad)
	validateCapabilities("capabilities", c.Capabilities, bad)
	c.Tools.validate(bad)
	return ps
}

// lineBreaks are the characters that end a header, or the value of one.
const lineBreaks = "\r\n\x00"

// validateRemote checks the keys that only an upstream with a url has.
func (c *Config) validateRemote(bad func(path, format string, args ...any)) {
	u, err := url.Parse(c.URL)
	_, known := transport.SchemeOf(u)
	before, rest, found := strings.Cut(c.URL, "://")
	switch {
	case !found || strings.ContainsAny(before, "/?#"): // the "://" is in the path or in the query
		scheme := "https://"
		if host, _, _ := strings.Cut(c.URL, ":"); host == "localhost" || strings.HasPrefix(host, "127.") {
			scheme = "http://"
		}
		bad("url", "needs a scheme: %s%s", scheme, strings.TrimPrefix(c.URL, "//"))
	case err != nil:
		bad("url", "is no URL; write it like https://mcp.example.com/mcp")
	case !known:
		bad("url", "has the scheme %s; a server is reached by %s: https://%s", u.Scheme, transport.SchemeWords(), rest)
	case u.Host == "":
		bad("url", "has no host; write it like https://mcp.example.com/mcp")
	case u.User != nil:
		bad("url", "carries a password; put it into headers")
	case u.Fragment != "":
		bad("url", "has a fragment (#…), which is never sent; remove it")
	}
	c.validateTLS(u, bad)
	c.validateIdentity(u, bad)
	c.validateMode(u, bad)
	c.validateKeyed(bad)
	c.Auth.validate(bad)
}

// validateMode checks the keys of auth by the row of the mode. u is the URL; nil if the entry has none.
func (c *Config) validateMode(u *url.URL, bad func(path, format string, args ...any)) {
	row, keys, kind := c.Auth.Mode.Row(), c.Auth.keys(), c.Kind()
	foreign := without(keys, row.AuthKeys)
	nobody := row.Owner == OwnerNobody
	switch {
	case !row.Has(kind):
		bad("auth", "is only for %s; remove it", row.Kinds[0].Name)
	case nobody && len(foreign) > 0 && !slices.Contains(kindsWith(foreign), kind):
		bad("auth", "is only for %s; remove it", kindsWith(foreign)[0].Name)
	case nobody && len(foreign) > 0:
		bad("auth", "has no effect without a mode; write %s", choices(foreign))
	default:
		row.checkKeys(keys, bad)
	}
	if scheme, known := transport.SchemeOf(u); !nobody && known && !scheme.Secure && !loopback.Host(u.Hostname()) {
		bad("auth.mode", "needs an https url, because %s would expose %s; %[1]s is allowed only for loopback",
			scheme.Word, row.Exposes)
	}
	for _, key := range keys {
		value := reflect.ValueOf(c.Auth).FieldByIndex(yamlread.Keys(reflect.TypeFor[Auth]())[key])
		if isSecret(key) && strings.ContainsAny(value.String(), lineBreaks) {
			bad("auth."+key, "has a line break in its value")
		}
	}
	if row.Judge != nil {
		row.Judge(&c.Auth, bad)
	}
	for k := range c.Headers {
		if row.Carries && kind.HTTP && strings.EqualFold(k, c.Auth.Carrier().Name()) {
			bad("headers."+k, "carries %s (auth.mode); remove one of the two", row.What)
		}
	}
}

// isSecret reports whether the value of a key of auth is a secret, which its name tells.
func isSecret(key string) bool {
	return slices.ContainsFunc([]string{"token", "secret", "password"}, func(end string) bool {
		return strings.HasSuffix(key, end)
	})
}

// checkKeys checks which keys of auth are set.
func (m Mode) checkKeys(keys []string, bad func(path, format string, args ...any)) {
	for _, key := range without(keys, m.AuthKeys) {
		bad("auth."+key, "does not belong to mode: %s; remove it", m.Word)
	}
	if missing := without(m.AuthNeeds, keys); len(missing) > 0 {
		bad("auth", "needs %s for mode: %s", strings.Join(missing, " and "), m.Word)
	}
	switch left := len(m.AuthOne) - len(without(m.AuthOne, keys)); {
	case len(m.AuthOne) > 0 && left == 0:
		bad("auth", "needs one of %s for mode: %s", strings.Join(m.AuthOne, ", "), m.Word)
	case left > 1:
		bad("auth", "has more than one of %s; remove all but one", strings.Join(m.AuthOne, ", "))
	}
}

// without returns the words of a list that are not in another one.
func without(list, other []string) []string {
	return slices.DeleteFunc(slices.Clone(list), func(word string) bool { return slices.Contains(other, word) })
}

// kindsWith returns the kinds of upstreams that may have a mode with one of these keys of auth.
func kindsWith(keys []string) (kinds []*client.ServerKind) {
	for _, row := range modes {
		if len(without(keys, row.AuthKeys)) < len(keys) {
			kinds = append(kinds, row.Kinds...)
		}
	}
	return kinds
}

// choices returns the modes that have all these keys, each with its reason.
func choices(keys []string) string {
	var list []string
	for _, row := range modes {
		if len(without(keys, row.AuthKeys)) == 0 {
			list = append(list, fmt.Sprintf("mode: %s %s", row.Word, row.Choose))
		}
	}
	return strings.Join(list, ", or ")
}

// reservedParams are the parameters of an authorization request that Junction sets, or that would change
// the answer.
var reservedParams = []string{"client_id", "client_secret", "code", "code_challenge", "code_challenge_method", "iss",
	"redirect_uri", "request", "request_uri", "resource", "response_mode", "response_type", "scope", "state"}

// paramName matches the names of parameters (RFC 6749, section 8.2).
var paramName = regexp.MustCompile(`^[A-Za-z0-9._-]+$`)

const (
	mostParams = 16
	maxParam   = 512 // bytes of a name and its value
)

// validateParams checks the parameters of an authorization request.
func (a *Auth) validateParams(bad func(path, format string, args ...any)) {
	if len(a.Params) > mostParams {
		bad("auth.params", "has more than %d parameters", mostParams)
	}
	for _, name := range slices.Sorted(maps.Keys(a.Params)) {
		at := "auth.params." + name
		switch {
		case name == "resource":
			bad(at, "is set by Junction; use auth.resource")
		case name == "scope":
			bad(at, "is set by Junction; use auth.scopes")
		// some servers read redirect.uri as redirect_uri
		case slices.Contains(reservedParams, strings.ReplaceAll(strings.ToLower(name), ".", "_")):
			bad(at, "is set by Junction itself; remove it")
		case !paramName.MatchString(name): // redirect_uri[] would be redirect_uri for some servers
			bad(at, "is no name of a parameter: it may have letters, digits, -, . and _ (RFC 6749, section 8.2)")
		case len(name)+len(a.Params[name]) > maxParam:
			bad(at, "has more than %d bytes, together with its name", maxParam)
		}
	}
}

// validateResource checks the resource indicator.
func (a *Auth) validateResource(bad func(path, format string, args ...any)) {
	u, err := url.Parse(a.Resource)
	switch {
	case a.Resource == "":
	case a.ClientID == "" || a.Issuer == "":
		bad("auth.resource", "needs client_id and issuer: without the resource of the server, only the client and its "+
			"scopes bind a token to the server")
	case a.Resource == "none":
	case err != nil || u.Scheme == "" || u.Fragment != "" || len(a.Resource) > maxParam:
		bad("auth.resource", "is no URI; write the one that the authorization server knows, such as "+
			"api://11111111-2222-3333-4444-555555555555, or none")
	}
}

// judgeProof checks the keys about the proof of a client that need another key.
func judgeProof(a *Auth, bad func(path, format string, args ...any)) {
	for _, of := range []struct{ key, text, other, needs string }{
		{"key_id", a.KeyID, "private_key_file", a.PrivateKeyFile},
		{"assertion_audience", string(a.AssertionAudience), "private_key_file", a.PrivateKeyFile},
		{"key_file", a.KeyFile, "cert_file", a.CertFile}} {
		if of.text != "" && of.needs == "" {
			bad("auth."+of.key, "has no effect without %s; remove it", of.other)
		}
	}
	if a.CertFile != "" && a.KeyFile == "" {
		bad("auth.cert_file", "needs key_file, the file with the key of the certificate")
	}
}

// judgeCarrier checks the header of a key.
func judgeCarrier(a *Auth, bad func(path, format string, args ...any)) {
	switch {
	case a.Header == "":
	case !http1.IsToken(a.Header):
		bad("auth.header", "is no HTTP header name")
	case !mayName(a.Header, useCarrier):
		bad("auth.header", "cannot carry a key; choose the header that the server documents, such as X-API-Key")
	}
	if a.Scheme != "" && !http1.IsToken(a.Scheme) {
		bad("auth.scheme", "is one word, such as Bearer or Token")
	}
}

// validate checks the keys of a sign-in.
func (a *Auth) validate(bad func(path, format string, args ...any)) {
	if a.ClientSecret != "" && a.ClientID == "" {
		bad("auth.client_secret", "has no client_id; add client_id")
	}
	if a.ClientID != "" && a.Issuer == "" {
		bad("auth.client_id", "has no issuer: add the issuer of the authorization server at which it is registered, "+
			"since another one must not get the client_secret, nor codes for this client. Without client_id, "+
			"junction auth doctor shows the issuer")
	}
	a.validateParams(bad)
	a.validateResource(bad)
	if (a.AuthorizationEndpoint == "") != (a.TokenEndpoint == "") {
		bad("auth", "has one of authorization_endpoint and token_endpoint; name both, because the two are permitted "+
			"together")
	}
	for _, u := range []struct{ key, text string }{{"issuer", a.Issuer},
		{"authorization_endpoint", a.AuthorizationEndpoint}, {"token_endpoint", a.TokenEndpoint}} {
		at, err := url.Parse(u.text)
		switch {
		case u.text == "":
		case err != nil || at.Host == "" || at.Scheme != "https" && at.Scheme != "http":
			bad("auth."+u.key, "is no URL; write it like https://login.example.com/…, as the metadata of the "+
				"authorization server have it")
		case at.Scheme == "http" && !loopback.Host(at.Hostname()):
			bad("auth."+u.key, "needs https: http is allowed only for loopback")
		}
	}
}

// validate checks the rules for the tools of an upstream.
func (r Rules) validate(bad func(path, format string, args ...any)) {
	as := map[string]string{}
	for _, rule := range r {
		at := "tools." + rule.Glob
		validateCapabilities(at+".capabilities", rule.Capabilities, bad)
		if _, err := path.Match(rule.Glob, ""); err != nil {
			bad(at, "is no glob: a [ is not closed")
		}
		if rule.Cache != nil {
			validateCache(at+".cache", *rule.Cache, bad)
			if *rule.Cache > 0 && rule.Off() {
				bad(at+".cache", "has no effect, because the rule disables the tools; remove one of the two")
			}
		}
		if rule.As == "" {
			continue
		}
		if strings.ContainsAny(rule.Glob, "*?[") {
			bad(at+".as", "renames one tool; %s is a glob", rule.Glob)
		}
		if other, ok := as[rule.As]; ok {
			bad(at+".as", "%s is the new name of %s already", rule.As, other)
		}
		as[rule.As] = rule.Glob
	}
}

// maxCache limits the time for which a result is reused.
const maxCache = 24 * time.Hour

func validateCache(at string, d time.Duration, bad func(path, format string, args ...any)) {
	if d > maxCache {
		bad(at, "is longer than 24h; write a duration such as 5m")
	}
}

func validateCapabilities(at string, list []string, bad func(path, format string, args ...any)) {
	for i, s := range list {
		if !validCapability(s) {
			bad(fmt.Sprintf("%s[%d]", at, i), "a capability has 1 to 64 of A-Z, a-z, 0-9, ., _, :, / and -")
		}
	}
}

const nameBytes = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-"

func validName(s string) bool {
	return s != "" && len(s) <= 32 && s[0] != '-' && strings.Trim(s, nameBytes) == ""
}

// Reserved reports whether MCP or a draft of MCP reserves the path of this name below the URL of a
// server: the server card (SEP-2127), and the catalog that names it.
func Reserved(name string) bool {
	return strings.EqualFold(name, "server-card") || strings.EqualFold(name, "ai-catalog")
}

func validCapability(s string) bool {
	return s != "" && len(s) <= 64 && strings.Trim(s, nameBytes+".:/") == ""
}

// LogValue shows where the upstream is and hides what may be secret: the environment, the headers
// and the query of the URL.
func (c Config) LogValue() slog.Value {
	return slog.StringValue(c.shown())
}

// Withheld returns the names of the variables in Junction's environment that look like keys, and that
// a command of the entry does not get although servers often need them. It does not return the
// variables of Junction itself.
func (c *Config) Withheld() []string {
	if !c.Kind().Process {
		return nil
	}
	return command.Withheld(c.environment())
}

// Unconfined returns which part of the entry's sandbox the kernel does not enforce, and what to do;
// "" if it enforces all, or if the entry has no sandbox.
func (c *Config) Unconfined() string {
	if c.Sandbox == nil {
		return ""
	}
	return c.Sandbox.Missing(sandbox.Kernel())
}

// Absent returns the paths of the entry's sandbox that do not exist or cannot be used on this
// kernel, by the keys in the section, such as write[0], each with what to do. writable is what confined
// commands may change.
func (c *Config) Absent(writable sandbox.Writable) map[string]string {
	if c.Sandbox == nil {
		return nil
	}
	return c.Sandbox.Absent(sandbox.Kernel(), writable)
}

// WideDir returns the working directory of the entry if its sandbox does not make it readable
// because it contains the home folder.
func (c *Config) WideDir() string {
	if c.Sandbox == nil || c.Dir == "" || !sandbox.TooWide(c.Dir, []string{"HOME=" + c.Env["HOME"]}) ||
		sandbox.Covers(append(slices.Clone(c.Sandbox.Read), c.Sandbox.Write...), filepath.Clean(c.Dir)) {
		return ""
	}
	return c.Dir
}
