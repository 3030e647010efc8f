// Package call has the commands that are a client of an endpoint: tools, call and skills.
package call

import (
	"io"

	"github.com/spf13/cobra"
)

// Commands returns the commands. file points to the value of --config.
func Commands(stdout io.Writer, file *string) []*cobra.Command {
	return []*cobra.Command{
		toolsCommand(stdout, file),
		callCommand(stdout, file),
		skillsCommand(stdout, file),
	}
}
