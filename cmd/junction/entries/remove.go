package entries

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"junction/cmd/junction/cli"
	"junction/cmd/junction/clients"
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
			name := args[0]
			f, err := readExisting(*file)
			if err != nil {
				return err
			}
			if err := f.entry(name); err != nil {
				return err
			}
			if len(f.config.Upstreams) == 1 {
				return fmt.Errorf("%s is the only upstream of %s, which needs at least one; run: junction disable %s",
					name, f.short(), name)
			}
			text, err := yamledit.Remove(f.text, section, name)
			if err != nil {
				return &clients.FileError{File: f.short(), Err: err}
			}
			o := outcome{Upstreams: []string{name}, Changed: true}
			if o.Backup, err = f.change(text, name); err != nil {
				return err
			}
			return o.print(cmd.Context(), stdout, f, asJSON, fmt.Sprintf("Removed %s from %s.", name, f.short()))
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

// switchCommand is `junction enable` or `junction disable`.
func switchCommand(stdout io.Writer, file *string, on bool) *cobra.Command {
	verb, done, effect := "disable", "Disabled", "A running junction ends the upstream when it reloads the file."
	if on {
		verb, done, effect = "enable", "Enabled", "A running junction starts the upstream when it reloads the file."
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
			name := args[0]
			f, err := readExisting(*file)
			if err != nil {
				return err
			}
			if err := f.entry(name); err != nil {
				return err
			}
			if f.config.Upstreams[name].Off() == !on {
				o := outcome{Upstreams: []string{name}}
				return o.print(cmd.Context(), stdout, f, asJSON,
					fmt.Sprintf("%s is %sd already in %s.", name, verb, f.short()))
			}
			text, err := f.switched(name, on)
			if err != nil {
				return &clients.FileError{File: f.short(), Err: err}
			}
			o := outcome{Upstreams: []string{name}, Changed: true}
			if o.Backup, err = f.change(text, name); err != nil {
				return err
			}
			return o.print(cmd.Context(), stdout, f, asJSON, fmt.Sprintf("%s %s in %s.", done, name, f.short()))
		},
	}
	cmd.Long = map[bool]string{
		true: "Enable a disabled upstream in the configuration file. The old file becomes a backup. " + effect,
		false: "Disable an upstream in the configuration file, which keeps its entry. The old file becomes a backup. " +
			"" + effect,
	}[on]
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
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
