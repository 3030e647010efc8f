// Package admin has the commands that ask the admin address of a running proxy (status, health, doctor,
// reconnect, console, pins and why), identity providers (auth doctor), or
// the configuration file (check), and what other commands ask there.
package admin

import (
	"io"

	"github.com/spf13/cobra"

	"junction/cmd/junction/base/cli"
	"junction/cmd/junction/base/config"
)

// Foresight tells what a start with a configuration would find beside its file.
type Foresight struct {
	Obstacles func(c *config.Config, file string) []config.Problem // what prevents the start
	// Revived returns the warnings of revoked API keys. The file is the content, and gets the name of served.
	Revived func(c *config.Config, file, served string) (config.Problems, error)
}

// Commands returns the commands. file points to the value of --config, and tools proposes the names of
// tools. connected finds the faults of connected clients.
func Commands(stdout io.Writer, version string, file *string, tools cli.Completion,
	start Foresight, connected Connected) []*cobra.Command {
	return []*cobra.Command{
		checkCommand(stdout, file, start),
		schemaCommand(stdout),
		statusCommand(stdout, file, connected.Moved),
		doctorCommand(stdout, version, file, connected.Faults),
		reconnectCommand(stdout, file),
		consoleCommand(stdout, file),
		healthCommand(stdout, file),
		pinsCommand(stdout, file),
		whyCommand(stdout, file, tools),
		authCommand(stdout, file),
	}
}
