package admin

import (
	"io"

	"github.com/spf13/cobra"

	"junction/cmd/junction/base/cli"
	"junction/cmd/junction/base/config"
)

// schemaCommand is `junction schema`.
func schemaCommand(stdout io.Writer) *cobra.Command {
	return &cobra.Command{
		Use: "schema", Short: "Print the JSON Schema of the configuration file", Args: cli.NoArguments,
		Long: `Print the JSON Schema of the configuration file. An editor with the language server for YAML completes
and explains the keys with it. junction setup writes the schema beside a new configuration file. For another
file, write the schema beside it, and name it in the first line of the file:

  # yaml-language-server: $schema=junction.schema.json`,
		Example: `  junction schema > junction.schema.json`,
		RunE: func(*cobra.Command, []string) error {
			_, err := io.WriteString(stdout, config.Schema())
			return err
		},
	}
}
