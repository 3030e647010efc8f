package setup

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"junction/cmd/junction/cli"
	"junction/cmd/junction/clients"
	"junction/cmd/junction/config"
	"junction/cmd/junction/service"
	"junction/upstream/prose"
)

// each runs a command for one client, or with --all for each client that is found. A failure concerns
// one client, and does not prevent the others.
func (c *connector) each(args []string, do func(*connector, string) (*connectJSON, string, error)) error {
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
	for _, client := range found {
		one := *c
		result, text, err := do(&one, client.ID)
		if err != nil {
			failures = append(failures, fmt.Errorf("%s: %w", client.Name, err))
			continue
		}
		results = append(results, result)
		failures = append(failures, result.incomplete())
		if !c.json {
			failures = append(failures, cli.Tell(c.stdout, text))
		}
	}
	if c.json {
		failures = append(failures, cli.PrintValue(c.stdout, results))
	}
	return errors.Join(failures...)
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
func (c *connector) afterReboot() []string {
	h, err := service.ThisHost()
	if err != nil {
		return nil
	}
	file, err := config.File(c.file)
	if err != nil {
		return nil
	}
	s, err := h.Of(file)
	if err != nil || s.Installed() {
		return nil
	}
	return []string{fmt.Sprintf("After a reboot, %s has no servers of Junction until Junction runs; to start it "+
		"at each login: %s", c.client.Name, config.Command(c.file, "service", "install"))}
}

// names joins names for a sentence.
func names(list []*clients.Client) string {
	var all []string
	for _, c := range list {
		all = append(all, prose.OneLine(c.Name))
	}
	return strings.Join(all, ", ")
}
