// Package setup has the commands that connect MCP clients and Junction. It reads and changes the
// files of clients with package clients, and the configuration file with package entries.
//
// import.go finds the servers in the files of clients and shows them; import_write.go adds them to the
// configuration file, import_project.go names those of one project, and merge.go decides about each of
// them. connect.go adds Junction to the file of a client, and removes it again. probe.go asks the URL of
// Junction before, and replace.go decides which servers leave the file. key.go decides how the client gets the
// API key, and key_faults.go checks these keys for junction doctor. moved.go finds the
// clients that have an old address of Junction. folder.go says why an entry starts junction
// stdio. guide.go runs the steps of a setup: guide_address.go looks for a free address, values.go asks for values,
// start.go starts Junction and waits for its servers, guide_clients.go connects clients, link.go makes a shell find
// the program, record.go notes what was done, undo.go undoes it.
package setup

import (
	"io"
	"junction/cmd/junction/base/cli"

	"github.com/spf13/cobra"
)

// Commands returns the commands. file points to the value of --config.
func Commands(stdout, stderr io.Writer, file *string) []*cobra.Command {
	return append(cli.OfFile(setupCommand(stdout, stderr, file), importCommand(stdout, stderr, file)),
		connectCommand(stdout, file), disconnectCommand(stdout, file))
}
