package setup

import (
	"context"
	"errors"
	"fmt"
	"junction/cmd/junction/base/runfile"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	"junction/cmd/junction/base/cli"
	"junction/cmd/junction/base/config"
	"junction/cmd/junction/desk/call"
	"junction/cmd/junction/desk/clients"
	"junction/cmd/junction/desk/entries"
	"junction/cmd/junction/desk/service"
	"junction/upstream/prose"
)

// total is what a command did with all clients.
type total struct {
	changed []*clients.Client // clients with changed files
	removed bool              // a client has lost a server
	again   bool              // a client keeps servers that do not work in Junction yet
}

// replaceLater returns the line about the servers that the clients keep because they do not work yet. command
// makes the command lines of it.
func replaceLater(command func(words ...string) string) string {
	return fmt.Sprintf("Clients keep the servers that do not work in Junction yet; %s shows why. When they work, "+
		"remove them from the clients with: %s", command("status"), command("connect", "--all", "--replace"))
}

// each runs a command for one client, or with --all for each client that is found. A failure concerns
// one client, and does not prevent the others. after returns the last lines of --all.
func (c *connector) each(args []string, do func(*connector, string) (*connectJSON, string, error),
	after func(total) []string) error {
	if !c.all {
		result, text, err := do(c, args[0])
		if err != nil {
			return err
		}
		return errors.Join(cli.Print(c.stdout, c.json, result, text), result.incomplete())
	}
	found, err := foundClients()
	if err != nil {
		return err
	}
	if len(found) == 0 {
		return errors.New("found no MCP client on this machine; name one of " + allClients())
	}
	results := []*connectJSON{}
	var failures []error
	var t total
	for _, client := range found {
		one := *c
		result, text, err := do(&one, client.ID)
		if err != nil {
			failures = append(failures, fmt.Errorf("%s: %w", client.Name, err))
			continue
		}
		results = append(results, result)
		if c.target = one.target; result.Changed {
			t.changed, t.removed = append(t.changed, client), t.removed || len(result.Servers) > 0
		}
		t.again = t.again || result.again
		failures = append(failures, result.incomplete())
		if !c.json {
			failures = append(failures, cli.Tell(c.stdout, text))
		}
	}
	if c.json {
		failures = append(failures, cli.PrintValue(c.stdout, results))
	} else if lines := after(t); len(lines) > 0 {
		failures = append(failures, cli.Tell(c.stdout, "\n"+entries.Lines(lines...)))
	}
	return errors.Join(failures...)
}

// afterConnect returns the last lines of connect --all.
func (c *connector) afterConnect(ctx context.Context) func(total) []string {
	return func(t total) (lines []string) {
		if c.target.URL == "" { // no client was connected
			return nil
		}
		switch text, ok := c.answers(ctx); {
		case !ok:
			lines = append(lines, text)
		case len(t.changed) == 0:
			lines = append(lines, "Junction answers at "+c.target.URL+".")
		}
		if t.removed {
			c.client = &clients.Client{Name: "a connected client"}
			lines = append(lines, c.afterReboot(ctx)...)
		}
		if t.again {
			lines = append(lines, replaceLater(func(words ...string) string {
				return config.Command(c.file, words...)
			}))
		}
		return append(lines, restart(t.changed, c.name)...)
	}
}

// restart returns the lines about the programs to restart, and where they list the entry of a name. For
// "" there is no entry.
func restart(changed []*clients.Client, name string) []string {
	if len(changed) == 0 {
		return nil
	}
	lines := []string{"Restart these programs: " + names(changed) + "."}
	if name != "" {
		lines = append(lines, "They then list "+name+" here:")
		for _, c := range changed {
			lines = append(lines, fmt.Sprintf("  %s: %s", c.Name, c.Seen()))
		}
	}
	return lines
}

// incomplete returns an error if a server could not be restored. The output has the reason.
func (r *connectJSON) incomplete() error {
	if len(r.Lost) == 0 {
		return nil
	}
	return fmt.Errorf("could not put all servers back into %s: %s", prose.OneLine(r.File), strings.Join(r.Lost, ", "))
}

// foundClients returns the clients that this machine seems to have.
func foundClients() (list []*clients.Client, err error) {
	home, err := clients.HomeOf("")
	if err != nil {
		return nil, err
	}
	exists := func(path string) bool {
		_, err := os.Stat(path)
		return err == nil
	}
	for _, p := range home.Found(exists) {
		list = append(list, p.Client)
	}
	return list, nil
}

// afterReboot returns the sentence about a client whose servers Junction has now, if nothing starts
// Junction again.
func (c *connector) afterReboot(ctx context.Context) []string {
	how := afterReboot(ctx, c.file, func(words ...string) string { return config.Command(c.file, words...) })
	if how == "" {
		return nil
	}
	return []string{fmt.Sprintf("After a reboot, %s has no servers of Junction until Junction runs; %s", c.client.Name,
		how)}
}

// afterReboot says how Junction runs after a reboot; "" if a service starts it. command returns a command line
// of junction about the file.
func afterReboot(ctx context.Context, flag string, command func(words ...string) string) string {
	h, err := service.ThisHost()
	if err != nil {
		return ""
	}
	file, err := config.File(flag)
	if err != nil {
		return ""
	}
	s, err := h.Of(file)
	if err != nil {
		return ""
	}
	return s.Reboot(ctx, command)
}

// names joins names for a sentence.
func names(list []*clients.Client) string {
	var all []string
	for _, c := range list {
		all = append(all, prose.OneLine(c.Name))
	}
	return strings.Join(all, ", ")
}

// quiet reports whether another text has the sentences that several clients have in common.
func (c *connector) quiet() bool { return c.guided || c.all && !c.json }

// check returns the sentence about how a person sees that a client is connected.
func (c *connector) check() string {
	return fmt.Sprintf("Restart %s. It then lists %s here: %s", c.client.Name, c.name, c.client.Seen())
}

// answers returns a sentence about whether a server answers at the URL of Junction, to which the client
// would send its requests, and whether one does. Any answer of HTTP counts, because a junction rejects a
// request without credentials.
func (c *connector) answers(ctx context.Context) (string, bool) {
	address := c.target.URL
	if _, err := url.Parse(address); err != nil {
		return fmt.Sprintf("%s is not a URL; give --url", address), false
	}
	resp, err := c.ask(ctx)
	switch {
	case call.TLSAdvice(err) != "":
		return fmt.Sprintf("%s does not work now: %s.", address, call.TLSAdvice(err)), false
	case err != nil && c.url != "":
		return fmt.Sprintf("Nothing answers at %s now.", address), false
	case err != nil:
		return fmt.Sprintf("Nothing answers at %s now; start it with: %s", address, runfile.Start(c.file)), false
	}
	next := ""
	switch {
	case resp.StatusCode == http.StatusNotFound && c.url != "":
		next = "; correct the path of --url, which is /mcp for all servers"
	case resp.StatusCode == http.StatusBadRequest && strings.HasPrefix(address, "http://"):
		next = "; if the port speaks TLS, write https:// in --url"
	case resp.StatusCode != http.StatusNotFound && resp.StatusCode < http.StatusInternalServerError:
		return "It answers.", true
	}
	return fmt.Sprintf("%s answers with %s%s.", address, resp.Status, next), false
}

// ask sends a request without credentials to the URL of Junction, and returns the answer without its body.
func (c *connector) ask(ctx context.Context) (*http.Response, error) {
	ctx, cancel := context.WithTimeout(ctx, answerLimit)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, c.target.URL, nil)
	if err != nil {
		return nil, err
	}
	client := http.Client{Transport: &http.Transport{Proxy: http.ProxyFromEnvironment, DisableKeepAlives: true},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	resp, err := client.Do(r)
	if err == nil {
		resp.Body.Close()
	}
	return resp, err
}

// answerLimit is how long ask waits.
const answerLimit = 3 * time.Second
