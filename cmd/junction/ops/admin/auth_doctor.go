package admin

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"junction/auth/credentials"
	"junction/auth/fetch"
	"junction/cmd/junction/base/cli"
	"junction/cmd/junction/base/config"
	"junction/cmd/junction/base/secrets"
	"junction/cmd/junction/ops/diagnose"
	"junction/upstream"
	"junction/upstream/prose"
)

// authCommand is `junction auth`.
func authCommand(stdout io.Writer, file *string) *cobra.Command {
	cmd := &cobra.Command{
		Use: "auth", Short: "Check the sign-in configuration", Args: cli.NoArguments,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	var asJSON bool
	doctor := &cobra.Command{
		Use:   "doctor",
		Short: "Check the identity providers of the configuration file",
		Long: `Compare the identity providers and authorization servers with the configuration file: issuer, keys,
endpoints, and the client_id and client_secret at identity providers. The command needs no running
proxy and changes nothing. The exit code is 1 if it finds a problem.`,
		Example: "  junction auth doctor --config config.yaml",
		Args:    cli.NoArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if *file == "" {
				return cli.Usagef("auth doctor needs --config FILE")
			}
			return authDoctor(cmd.Context(), stdout, *file, asJSON)
		},
	}
	cli.JSONFlag(doctor, &asJSON)
	cmd.AddCommand(doctor)
	return cmd
}

// providerPatience is the time limit for one document of a provider.
const providerPatience = 10 * time.Second

// authDoctor prints its findings. The error counts the problems.
func authDoctor(ctx context.Context, stdout io.Writer, file string, asJSON bool) error {
	c, err := secrets.Load(ctx, file, nil, "auth")
	if err != nil {
		return err
	}
	asked := map[string]upstream.Config{} // the upstreams with credentials that can be probed
	for name, u := range c.Upstreams {
		if row := u.Auth.Mode.Row(); row.Doctor != "" && !u.Off() && c.Has(row.Needs) {
			asked[name] = u
		}
	}
	if !c.Auth.SignsIn() && c.Auth.OAuth == nil && len(asked) == 0 && !asJSON {
		return cli.Tell(stdout, "No sign-in is configured: the file has none of auth.oauth, auth.jwt and "+
			"auth.introspection, and no upstream with a sign-in.\n")
	}
	fetcher, err := c.Outbound.Fetcher()
	if err != nil {
		return err
	}
	transport := config.Trusting(fetcher)
	defer transport.CloseIdleConnections()
	d := &signInDoctor{client: &http.Client{Transport: transport, Timeout: providerPatience}, out: cli.NewPage(stdout)}
	d.providers(ctx, c)
	sources, done := diagnose.Unstored(c, fetcher)
	defer done()
	sources.Use(asked)
	d.servers(ctx, sources, asked)
	d.issuers(ctx, c)
	if c.Auth.OAuth != nil && d.problems == 0 { // a problem must not be lost above the lines for clients
		fmt.Fprintf(d.out, "\nClients sign in at %s/mcp\n%s", c.PublicURL,
			strings.ReplaceAll(ClientLines, "URL", c.PublicURL+"/mcp"))
	}
	all := struct {
		Findings []findingJSON `json:"findings"`
	}{append([]findingJSON{}, d.findings...)}
	if err := cli.Print(stdout, asJSON, all, d.out.String()); err != nil {
		return err
	}
	if d.problems > 0 {
		return errors.New(prose.Count(d.problems, "problem"))
	}
	return nil
}

// providers checks the identity providers.
func (d *signInDoctor) providers(ctx context.Context, c *config.Config) {
	if c.Auth.OAuth == nil {
		return
	}
	for _, p := range c.Auth.OAuth.IdentityProviders {
		d.begin("identity provider " + p.ID)
		d.note("register as redirect URI: " + c.PublicURL + "/oauth/callback/" + p.ID)
		m := d.provider(ctx, p.Issuer, p.Scopes, c.PublicURL+"/oauth/backchannel-logout/"+p.ID)
		if m != nil && m.Token != "" {
			d.credentials(ctx, m.Token, c.PublicURL+"/oauth/callback/"+p.ID, p.ClientID, p.ClientSecret)
		}
	}
}

// servers checks the sign-ins at upstreams.
func (d *signInDoctor) servers(ctx context.Context, sources *credentials.Sources, asked map[string]upstream.Config) {
	for _, name := range slices.Sorted(maps.Keys(asked)) {
		row := asked[name].Auth.Mode.Row()
		d.begin("server " + name + ", " + row.About(row.Doctor, name))
		switch blocked := asked[name].Blocked; {
		case blocked != "" && row.SignIn:
			d.bad(blocked, "users cannot sign in there until this mistake is corrected")
		case blocked != "":
			d.bad(blocked, "calls fail until this mistake is corrected")
		default:
			d.probed(sources.Probe(ctx, name))
		}
	}
}

// issuers checks the issuers of tokens.
func (d *signInDoctor) issuers(ctx context.Context, c *config.Config) {
	for _, i := range c.Auth.JWT {
		d.begin("issuer of tokens " + i.Issuer)
		d.note("its tokens must be for: " + strings.Join(i.Audiences, " or "))
		if i.JWKSURL != "" {
			d.keys(ctx, i.JWKSURL)
		} else {
			d.issuer(ctx, i.Issuer)
		}
	}
}

// signInDoctor collects the findings about identity providers and authorization servers.
type signInDoctor struct {
	client   *http.Client
	out      *prose.Page
	problems int

	about    string // of the next findings
	findings []findingJSON
}

// findingJSON is a finding in the output of --json.
type findingJSON struct {
	About  string `json:"about"` // the provider or server
	OK     bool   `json:"ok"`
	Text   string `json:"text"`
	Remedy string `json:"remedy,omitempty"`
}

func (d *signInDoctor) begin(what string) {
	d.about = what
	fmt.Fprintf(d.out, "%s\n", what)
}

func (d *signInDoctor) good(text string) {
	d.findings = append(d.findings, findingJSON{d.about, true, text, ""})
	d.out.Wrap("  ok    ", "        ", text)
}

// note reports what a person has to set up elsewhere. The doctor cannot check it.
func (d *signInDoctor) note(text string) {
	d.findings = append(d.findings, findingJSON{d.about, true, text, ""})
	d.out.Wrap("  note  ", "        ", text)
}

// warn reports a finding that is no mistake, but that users will notice.
func (d *signInDoctor) warn(text, remedy string) {
	d.findings = append(d.findings, findingJSON{d.about, true, text, remedy})
	d.out.Wrap("  warn  ", "        ", text)
	d.out.Wrap("        → ", "          ", remedy)
}

func (d *signInDoctor) bad(text, remedy string) {
	d.problems++
	d.findings = append(d.findings, findingJSON{d.about, false, text, remedy})
	d.out.Wrap("  WRONG ", "        ", text)
	d.out.Wrap("        → ", "          ", remedy)
}

// probed adds the findings about the credential of an upstream.
func (d *signInDoctor) probed(list []credentials.Finding) {
	for _, f := range list {
		switch f.Level {
		case credentials.Good:
			d.good(f.Text)
		case credentials.Warning:
			d.warn(f.Text, f.Remedy)
		case credentials.Note:
			d.note(f.Text)
		default:
			d.bad(f.Text, f.Remedy)
		}
	}
}

// metadata is the part of the metadata that auth doctor checks (OpenID Connect Discovery 1.0, RFC
// 8414).
type metadata struct {
	Issuer    string   `json:"issuer"`
	Authorize string   `json:"authorization_endpoint"`
	Token     string   `json:"token_endpoint"`
	Keys      string   `json:"jwks_uri"`
	Scopes    []string `json:"scopes_supported"`
	Logout    bool     `json:"backchannel_logout_supported"`
}

// provider checks an identity provider. logout is the URL for its logouts. It returns nil if the
// metadata cannot be read.
func (d *signInDoctor) provider(ctx context.Context, issuer string, scopes []string, logout string) *metadata {
	m := d.issuer(ctx, issuer)
	if m == nil {
		return nil
	}
	if m.Logout {
		d.note("register as back-channel logout URI: " + logout)
	} else {
		d.warn("it offers no back-channel logout: a user who is logged out or disabled there loses access with the "+
			"next refresh, after at most auth.oauth.tokens.access_ttl and two minutes",
			"turn on back-channel logout there if the provider has it, or shorten access_ttl (at least 10m)")
	}
	if m.Authorize == "" || m.Token == "" {
		d.bad("its metadata names no authorization_endpoint or no token_endpoint",
			"sign-in is impossible; check that the URL belongs to an OpenID provider")
	}
	if len(scopes) == 0 {
		scopes = []string{"openid", "profile", "email", "offline_access"}
	}
	if len(m.Scopes) > 0 {
		for _, s := range scopes {
			if !slices.Contains(m.Scopes, s) && s != "offline_access" {
				d.bad("it does not have the scope "+s, "leave it out of scopes, or set it up there")
			}
		}
		if slices.Contains(scopes, "offline_access") && !slices.Contains(m.Scopes, "offline_access") {
			d.warn("it does not have the scope offline_access: if it gives no refresh token, apps lose access after "+
				"max_age_without_idp_refresh (24 hours by default), and users sign in again",
				"set the scope up there, or set parameters with which it gives refresh tokens")
		}
	}
	return m
}

// credentials sends a code that no provider has issued, by both methods of RFC 6749, section 2.3.1. A
// provider that knows the client rejects the code, and another one the client.
func (d *signInDoctor) credentials(ctx context.Context, endpoint, redirect, id, secret string) {
	form := url.Values{"grant_type": {"authorization_code"}, "code": {"junction-auth-doctor"},
		"redirect_uri": {redirect}, "code_verifier": {strings.Repeat("junction-auth-doctor-", 3)}, "client_id": {id}}
	var why string
	for _, inHeader := range []bool{true, false} {
		if inHeader && secret == "" {
			continue
		}
		if !inHeader && secret != "" {
			form.Set("client_secret", secret)
		}
		r, err := http.NewRequestWithContext(ctx, http.MethodPost, endpoint, strings.NewReader(form.Encode()))
		if err != nil {
			return // the metadata has no URL, which was reported
		}
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		if inHeader {
			r.SetBasicAuth(url.QueryEscape(id), url.QueryEscape(secret))
		}
		resp, err := d.client.Do(r)
		if err != nil {
			d.bad(fmt.Sprintf("its token endpoint %s cannot be reached: %v", endpoint, err),
				cmp.Or(fetch.Advice(err), "users cannot sign in until this machine reaches it"))
			return
		}
		var answer struct {
			Error       string `json:"error"`
			Description string `json:"error_description"`
		}
		err = json.NewDecoder(io.LimitReader(resp.Body, 1<<16)).Decode(&answer)
		resp.Body.Close()
		if err != nil || resp.StatusCode >= http.StatusInternalServerError {
			d.warn(fmt.Sprintf("its token endpoint %s answers %s, so that client_id and client_secret could not be "+
				"checked", endpoint, resp.Status),
				"compare both with the registration of Junction at the provider, or try again later")
			return
		}
		if answer.Error != "invalid_client" && answer.Error != "unauthorized_client" {
			d.good("it does not reject client_id and client_secret")
			return
		}
		why = answer.Error + ": " + answer.Description
		if secret != "" { // before the cut, which could leave a part of it
			why = strings.ReplaceAll(why, secret, "***")
		}
	}
	why = strings.TrimSuffix(prose.Cut(prose.Flat(why), 180), ":")
	d.bad("it rejects client_id and client_secret ("+why+")",
		"compare both with the registration of Junction at the provider: no user can sign in")
}

// issuer compares the metadata of an issuer with the file. It returns nil if the metadata cannot be
// read.
func (d *signInDoctor) issuer(ctx context.Context, issuer string) *metadata {
	var m metadata
	base := strings.TrimSuffix(issuer, "/")
	err := d.read(ctx, base+"/.well-known/openid-configuration", &m)
	if err != nil {
		if other := d.read(ctx, base+"/.well-known/oauth-authorization-server", &m); other != nil {
			d.bad(err.Error(), cmp.Or(fetch.Advice(err), "compare issuer with what the provider calls its issuer; "+
				"a browser on this machine should show "+base+"/.well-known/openid-configuration"))
			return nil
		}
	}
	if m.Issuer != issuer {
		d.bad(fmt.Sprintf("it calls itself %q, the file %q", m.Issuer, issuer),
			"write issuer: "+m.Issuer+", to the letter: tokens are compared with it")
		return nil
	}
	d.good("it is who the file says: " + m.Issuer)
	if m.Keys == "" {
		d.bad("its metadata names no jwks_uri", "its tokens cannot be checked")
		return &m
	}
	d.keys(ctx, m.Keys)
	return &m
}

// keys checks the keys that sign tokens.
func (d *signInDoctor) keys(ctx context.Context, url string) {
	var set struct {
		Keys []struct {
			Use string `json:"use"`
			Kty string `json:"kty"`
		} `json:"keys"`
	}
	if err := d.read(ctx, url, &set); err != nil {
		d.bad(err.Error(), cmp.Or(fetch.Advice(err), "its tokens cannot be checked without its keys"))
		return
	}
	n := 0
	for _, k := range set.Keys {
		if k.Use != "enc" && k.Kty != "oct" {
			n++
		}
	}
	if n == 0 {
		d.bad("it has no key to check a signature with at "+url, "set it up to sign with RS256, ES256 or PS256")
		return
	}
	d.good(fmt.Sprintf("%s at %s", prose.Count(n, "key"), url))
}

// read reads a JSON document of at most 1 MiB.
func (d *signInDoctor) read(ctx context.Context, url string, into any) error {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	resp, err := d.client.Do(r)
	if err != nil {
		return fmt.Errorf("cannot connect: %w", err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%s answers %s", url, resp.Status)
	}
	if err := json.NewDecoder(io.LimitReader(resp.Body, 1<<20)).Decode(into); err != nil {
		return fmt.Errorf("%s is no JSON document that can be read: %w", url, err)
	}
	return nil
}

// ClientLines are the commands that add Junction to clients. URL is a placeholder.
const ClientLines = `
Claude Code
  claude mcp add --scope user \
    --transport http junction URL
Codex
  codex mcp add junction --url URL
VS Code
  code --add-mcp \
    '{"name":"junction","type":"http","url":"URL"}'
Cursor, in ~/.cursor/mcp.json
  {"mcpServers": {"junction": {"url": "URL"}}}
`
