package entries

import (
	"io"

	"github.com/spf13/cobra"

	"junction/cmd/junction/cli"
	"junction/cmd/junction/yamledit"
)

// oneName accepts the name of one upstream.
func oneName(cmd *cobra.Command, args []string) error {
	if len(args) != 1 {
		return cli.Usagef("%s needs the name of one upstream; junction list shows them", cmd.Name())
	}
	return nil
}

// removeCommand is `junction remove`.
func removeCommand(stdout io.Writer, file *string) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:     "remove NAME",
		Aliases: []string{"rm"},
		Short:   "Remove an upstream from the configuration file",
		Long: "Remove an upstream from the configuration file, with the comment directly above it. The old file " +
			"becomes a backup.\n" +
			`A running junction ends the upstream when it reloads the file. Files in the folder secrets stay.`,
		Example: "  junction remove notes",
		Args:    oneName,

		ValidArgsFunction: cli.CompleteUpstreams(file, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			e, err := Edit(stdout, *file, asJSON, false)
			if err != nil {
				return err
			}
			return e.Remove(cmd.Context(), args[0])
		},
	}
	cli.JSONFlag(cmd, &asJSON)
	return cmd
}

// switchCommand is `junction enable` or `junction disable`.
func switchCommand(stdout io.Writer, file *string, on bool) *cobra.Command {
	verb, effect := "disable", "A running junction ends the upstream when it reloads the file."
	if on {
		verb, effect = "enable", "A running junction starts the upstream when it reloads the file."
	}
	var asJSON bool
	cmd := &cobra.Command{
		Use: verb + " NAME",
		Short: map[bool]string{true: "Enable a disabled upstream",
			false: "Disable an upstream and keep its entry"}[on],
		Example: "  junction " + verb + " notes",
		Args:    oneName,

		ValidArgsFunction: cli.CompleteUpstreams(file, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			e, err := Edit(stdout, *file, asJSON, false)
			if err != nil {
				return err
			}
			return e.Switch(cmd.Context(), args[0], on)
		},
	}
	cmd.Long = map[bool]string{
		true: "Enable a disabled upstream in the configuration file. The old file becomes a backup. " + effect,
		false: "Disable an upstream in the configuration file, which keeps its entry. The old file becomes a backup. " +
			"" + effect,
	}[on]
	cli.JSONFlag(cmd, &asJSON)
	return cmd
}

// switched returns the text of the file with an upstream enabled or disabled. enabled: false is
// removed rather than changed, so that enable undoes disable byte for byte.
func (f *file) switched(name string, on bool) ([]byte, error) {
	const key = "enabled"
	if !on {
		return yamledit.Set(f.text, section, name, key, "false")
	}
	if text, err := yamledit.Unset(f.text, section, name, key); err == nil {
		if c, _, err := parse(f.path, text); err == nil && !c.Upstreams[name].Off() {
			return text, nil
		}
	}
	return yamledit.Set(f.text, section, name, key, "true")
}
