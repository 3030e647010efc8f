package admin

import (
	"junction/cmd/junction/base/cli"
	"junction/cmd/junction/base/runfile"
	"junction/upstream/shell"
)

// NeedsFile returns the usage error of a command that needs --config. It names the file of the junction that
// runs, if there is one.
func NeedsFile(what string) error {
	if p, ok := runfile.Only(); ok && p.File != "" {
		return cli.Usagef("%s needs --config FILE; the Junction that runs serves %s", what, shell.Quote(p.File))
	}
	return cli.Usagef("%s needs --config FILE, or run junction setup, which writes a file of your own", what)
}
