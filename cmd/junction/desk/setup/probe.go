package setup

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"strings"

	"junction/cmd/junction/base/config"
	"junction/cmd/junction/base/revision"
	"junction/cmd/junction/base/runfile"
	"junction/cmd/junction/desk/call"
	"junction/cmd/junction/desk/clients"
	"junction/upstream/prose"
)

// This file asks the URL of Junction before a client gets it.

// probes are the answers of URLs in one run of a command: several clients have one URL.
type probes struct {
	answers map[probe]call.Answer
	said    map[string]bool // the sentences that one client had already
}

// probe is a URL and the API key of the request; "" is none.
type probe struct{ url, key string }

func newProbes() *probes {
	return &probes{answers: map[probe]call.Answer{}, said: map[string]bool{}}
}

// say notes a sentence that one client has had. The method of nil does nothing.
func (p *probes) say(text string) {
	if p != nil {
		p.said[text] = true
	}
}

// ask asks the URL of Junction with an API key, once in a run. One that does not answer is not asked with a key.
func (c *connector) ask(ctx context.Context, key string) call.Answer {
	if c.probes == nil {
		c.probes = newProbes()
	}
	p := probe{c.target.URL, key}
	if a, asked := c.probes.answers[probe{url: p.url}]; asked && a.Verdict == call.Unreached {
		return a
	}
	if _, asked := c.probes.answers[p]; !asked {
		c.probes.answers[p] = call.Probe(ctx, p.url, key)
	}
	return c.probes.answers[p]
}

// verify asks the URL of Junction as the client will. The error means that the entry would not work. If nothing
// answers, the entry may be right: Junction may start later.
func (c *connector) verify(ctx context.Context) error {
	var from string
	if c.key, from = c.keyOfClient(); c.key != "" && call.CheckURL(c.target.URL, true) != nil {
		c.key = "" // keyNotes says that the key would cross the network in plain text
	}
	c.answer = c.ask(ctx, c.key)
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case c.answer.Verdict == call.NoEndpoint:
		return fmt.Errorf("%s does not work as an endpoint of Junction: %s; %snothing was changed", c.target.URL,
			strings.TrimSuffix(c.answer.Reason, "."), c.mend())
	case c.answer.Verdict == call.NeedsKey && c.key != "":
		reason := ""
		if c.answer.Reason != "" {
			reason = " (" + strings.TrimSuffix(c.answer.Reason, ".") + ")"
		}
		return fmt.Errorf("%s does not accept the API key %s%s; %s; nothing was changed", c.target.URL, from, reason,
			c.newKey())
	}
	return nil
}

// mend returns what to do about a URL that is no endpoint, as a clause.
func (c *connector) mend() string {
	secure, plain := strings.CutPrefix(c.target.URL, "http://")
	switch {
	case c.answer.Advice != "":
		return c.answer.Advice + "; "
	case c.answer.Status == http.StatusForbidden: // the answer says what to do
		return ""
	case c.url == "" && c.target.URL == c.config.PublicURL+"/mcp":
		return "correct public_url in " + c.home.Short(c.target.Config) + ", or give --url; "
	case c.url == "":
		return "another program has this address: end it, or set listen in " + c.home.Short(c.target.Config) +
			" to another one; "
	case plain && c.answer.Status == http.StatusBadRequest:
		return "correct --url, whose path is /mcp for all servers; if the port speaks TLS, it is https://" + secure +
			"; "
	}
	return "correct --url, whose path is /mcp for all servers; "
}

// newKey returns how a person gets an API key.
func (c *connector) newKey() string {
	if c.known() == nil {
		return "ask the operator of Junction for another one"
	}
	return "to make another one: " + config.Command(c.file, "keys", "create", "NAME", "--write")
}

// keyOfClient returns the API key that the client will send, if this command knows it, and where it is from. A person
// types the key into a client that asks for it, most likely the one of the variable.
func (c *connector) keyOfClient() (key, from string) {
	t := &c.target
	switch {
	case !t.Key:
		return "", ""
	case c.way == clients.ByInput: // it has no file with a key
	case t.Secret != "" && strings.TrimSpace(os.Getenv(clients.KeyVariable)) == "":
		return t.Secret, "that was given"
	case t.Secret == "" && t.KeyFile != "":
		text, err := revision.Read(t.KeyFile)
		if err != nil {
			return "", ""
		}
		return strings.TrimSpace(string(text)), "in " + c.home.Short(t.KeyFile)
	}
	return strings.TrimSpace(os.Getenv(clients.KeyVariable)), "in " + clients.KeyVariable
}

// answered returns a sentence about the answer of the URL of Junction, and whether a client can use it.
func (c *connector) answered() (string, bool) {
	a, address := &c.answer, c.target.URL
	unchecked := ""
	switch {
	case c.key != "":
		unchecked = " The API key was not checked."
	case c.url != "" && !c.target.Key:
		unchecked = " When it works, run this command again: it could not ask whether Junction needs an API key."
	}
	switch {
	case a.Verdict == call.NoRights && c.key == "":
		return "It answers, and no policy gives this client access: " + strings.TrimSuffix(a.Reason, ".") + ".", false
	case a.Verdict != call.Unreached:
		return "It answers.", true
	case a.Distrusted:
		return fmt.Sprintf("%s does not work now: %s.%s", address, c.client.Distrusted(c.target), unchecked), false
	case a.Advice != "":
		return fmt.Sprintf("%s does not work now: %s.%s", address, a.Advice, unchecked), false
	case a.Status != 0:
		return fmt.Sprintf("%s does not work now: %s.%s", address, a.Reason, unchecked), false
	case c.url != "":
		return fmt.Sprintf("Nothing answers at %s now.%s", address, unchecked), false
	}
	return fmt.Sprintf("Nothing answers at %s now; start it with: %s%s", address, runfile.Start(c.file),
		strings.TrimSuffix("\n"+strings.TrimSpace(unchecked), "\n")), false
}

// accepted returns the sentence about an API key that Junction accepts, once in a run.
func (c *connector) accepted(ctx context.Context) []string {
	none := c.answer.Verdict == call.NoRights
	if c.key == "" || c.answer.Verdict != call.Works && !none {
		return nil
	}
	text := "Junction accepts the API key"
	switch {
	case none:
		text += ", and no policy gives it access: " + strings.TrimSuffix(c.answer.Reason, ".") + "."
	case c.answer.Tools > 0:
		text += ", and offers it " + prose.Count(c.answer.Tools, "tool") + "."
	case c.answer.Tools < 0:
		text += "."
	case c.elsewhere():
		text += ", and offers it no tools: no policy allows it any, or the servers are still starting; ask the " +
			"operator of Junction."
	default:
		text += ", and offers it no tools. " + call.WhyNoTools(ctx, c.file, c.target.URL, c.key)
	}
	if c.probes.said[text] {
		return nil
	}
	c.probes.said[text] = true
	return []string{text}
}
