package serve

import (
	"context"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"junction/auth"
	"junction/auth/seal"
	"junction/cmd/junction/base/cli"
	"junction/cmd/junction/base/config"
	"junction/cmd/junction/base/replicas"
	"junction/cmd/junction/ops/signins"
	"junction/upstream/prose"
)

// ReplicasCommand is `junction replicas`.
func ReplicasCommand(stdout io.Writer, file *string) *cobra.Command {
	cmd := &cobra.Command{
		Use: "replicas", Short: "Choose the configuration of several processes", Args: cli.NoArguments,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	asJSON := false
	adopt := &cobra.Command{
		Use: "adopt", Short: "Have processes with this file replace those with another one", Args: cli.NoArguments,
		Long: `Give a configuration file the highest number, so that processes with it replace those with another one.

Processes over one database must have some keys equal, such as public_url and names. Of two files that differ in
such a key, the one with the higher number is in force: processes with the other file do not join, and say so. A
file gets a number when it is served first. So a process with an older file cannot replace the newer ones by
accident, also after the database was restored.

This command is for a change of such a key in one step, and for the way back. Processes with another file serve
until the first process with this file is started. Then they answer 503 and name this file's number, and the new
process serves at once. Give them this file, or stop them. To go back, run the command with their file.`,
		Example: "  junction replicas adopt --config config.yaml",
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx, cancel := context.WithTimeout(cmd.Context(), signins.StorageLimit)
			defer cancel()
			a, err := adoptFile(ctx, *file)
			if err != nil {
				return err
			}
			return cli.Print(stdout, asJSON, a, adoptedText(*file, a))
		},
	}
	cli.JSONFlag(adopt, &asJSON)
	cmd.AddCommand(adopt)
	return cmd
}

// adoptFile gives the configuration of a file the highest number.
func adoptFile(ctx context.Context, file string) (a replicas.Adopted, err error) {
	if file == "" {
		return a, cli.Usagef("replicas adopt needs --config FILE, because the file is what the processes are to have")
	}
	c, err := config.LoadAsService(file, "auth", "names", "replicas", "sessions")
	if err != nil {
		return a, err
	}
	if !c.Replicas.On() {
		return a, fmt.Errorf("%s has no section replicas: one process needs no number", file)
	}
	text, err := os.ReadFile(c.Sessions.KeyFile)
	if err != nil {
		return a, fmt.Errorf("read the keys of sessions (sessions.key_file): %w", err)
	}
	secrets, err := parseKeys(c.Sessions.KeyFile, string(text))
	if err != nil {
		return a, fmt.Errorf("sessions.key_file: %w", err)
	}
	key, err := seal.NewKey(secrets[0], secrets[1:]...)
	if err != nil {
		return a, err
	}
	if a, err = replicas.Adopt(ctx, c.Storage.DSN, key, c.Shared); err != nil {
		return a, fmt.Errorf("no number was given: %s", auth.Redact(err.Error()))
	}
	return a, nil
}

// adoptedText says what a command has done, and what happens next.
func adoptedText(file string, a replicas.Adopted) string {
	has := fmt.Sprintf("The configuration of %s has the number %d now, the highest one.", prose.OneLine(file), a.Number)
	if !a.Changed {
		has = fmt.Sprintf("The configuration of %s has the highest number already: %d.", prose.OneLine(file), a.Number)
	}
	if len(a.MakeWay) == 0 {
		return has + " No process with another one serves.\n"
	}
	return fmt.Sprintf("%s It differs in %s from that of these processes: %s. They serve until a process with this "+
		"file is started, and then make way. To go back, run the command with their file.\n", has,
		strings.Join(a.Keys, ", "), strings.Join(a.MakeWay, ", "))
}
