package main

import (
	"io"

	"github.com/spf13/cobra"

	"junction/cmd/build"
	"junction/cmd/junction/base/cli"
)

// versionCommand is `junction version`.
func versionCommand(stdout io.Writer) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use: "version", Short: "Print the version, the commit and its date", Args: cli.NoArguments,
		RunE: func(*cobra.Command, []string) error {
			b := build.Read()
			return cli.Print(stdout, asJSON, b, b.Text("junction"))
		},
	}
	cli.JSONFlag(cmd, &asJSON)
	return cmd
}
