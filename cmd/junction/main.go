// Command junction serves many MCP servers behind one MCP URL.
//
// main.go has the commands and exit codes. start.go waits for another process that is ending.
// program.go has the parts of a running proxy and their lifetimes: listen.go opens the listeners
// (package listeners), and members.go adds the process to others (package replicas). signin.go,
// people.go and vault.go have the sign-ins of users, and state.go has the key of sessions and the
// stored catalogs (package stored).
//
// Package config reads the configuration file; reload.go applies a changed one. Package prose
// formats text for people. Packages yamlread and yamledit read and change YAML with its lines and
// comments. Package build has the version of the program.
//
// A running proxy reports in these ways: hooks.go and events.go write the lines of the log and of
// the audit (package record). telemetry.go sends metrics and traces (package telemetry). Package
// diagnose answers at the admin address, and pages.go serves the pages (package pages). probes.go
// checks what the proxy depends on (package health). Package screen prints the first screen.
// Package runfile tells the commands where the proxy serves.
//
// The commands: package cli asks a running proxy, package entries changes the upstreams of the
// configuration file (from a registry by package registry), package packs installs packs of tools,
// package signins changes the storage of sign-ins, and package audit reads the audit. Package setup
// reads and changes the files of MCP clients (package clients). Package bridge connects a client to
// the endpoint; package service starts Junction at each login, and own.go serves for both. Package
// signon signs the user of cli and of bridge in there. login.go signs in to upstreams. Package demo is
// the demo server.
package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"junction/cmd/junction/base/cli"
	"junction/cmd/junction/base/config"
	"junction/cmd/junction/base/runfile"
	"junction/cmd/junction/demo"
	"junction/cmd/junction/desk/bridge"
	"junction/cmd/junction/desk/call"
	"junction/cmd/junction/desk/entries"
	"junction/cmd/junction/desk/packs"
	"junction/cmd/junction/desk/service"
	"junction/cmd/junction/desk/setup"
	"junction/cmd/junction/ops/admin"
	"junction/cmd/junction/ops/audit"
	"junction/cmd/junction/ops/signins"
	"junction/upstream/sandbox"
)

func main() {
	if len(os.Args) > 1 && os.Args[1] == sandbox.Word {
		os.Exit(sandbox.Main())
	}
	sandbox.HideEnvironment() // any command may have an API key
	os.Exit(run(untilSignal(), os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}

// untilSignal returns a context that the first interrupt or TERM signal cancels. The second signal
// ends the process at once.
func untilSignal() context.Context {
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	ctx, end := context.WithCancel(context.Background())
	go func() { // runs until the first signal
		<-signals
		signal.Stop(signals)
		end()
		select {
		case second := <-signals: // it arrived before signal.Stop took effect
			if self, err := os.FindProcess(os.Getpid()); err != nil || self.Signal(second) != nil {
				os.Exit(1)
			}
		default:
		}
	}()
	return ctx
}

// run runs a command line and returns the exit code: 0, 1 for a failure, 2 for wrong usage.
func run(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	return cli.Run(ctx, rootCommand(stdin, stdout, stderr), args, stdin, stdout, stderr)
}

func rootCommand(stdin io.Reader, stdout, stderr io.Writer) *cobra.Command {
	var o options
	root := &cobra.Command{
		Use:   "junction",
		Short: "Serve many MCP servers behind one MCP URL",
		Long: `Junction serves many MCP servers behind one MCP URL.

The configuration file is that of --config, or junction/config.yaml in the user's folder for configurations
(~/.config on Linux). If there is none, or with --config "", Junction serves a small demo server.`,
		Example: `  junction setup
  junction
  junction --config config.yaml
  junction check --config config.yaml
  junction tools
  junction call demo__echo text=hello`,
		Version:       version(),
		SilenceErrors: true,
		SilenceUsage:  true,
		Args: func(cmd *cobra.Command, args []string) error {
			switch {
			case len(args) == 0:
				return nil
			case args[0] == "log" || args[0] == "logs":
				return cli.Usagef("there is no command %q; %s", args[0], service.WhereIsTheLog(o.file))
			}
			return cli.UnknownCommand(cmd, args[0])
		},
		RunE: func(cmd *cobra.Command, _ []string) error {
			o.stdout, o.stderr, o.getenv = stdout, stderr, os.LookupEnv
			return runProxy(cmd.Context(), o)
		},
	}
	root.SetVersionTemplate("junction {{.Version}}\n")
	root.PersistentFlags().StringVar(&o.file, "config", "",
		"configuration `file` (default: junction/config.yaml in the user's folder for configurations, if it exists)")
	root.PersistentPreRunE = func(cmd *cobra.Command, _ []string) error {
		if !cmd.Flags().Changed("config") {
			o.file = userFile()
		}
		return cli.CheckFile(cmd, o.file)
	}
	root.Flags().StringVar(&o.listen, "listen", "",
		"`address` to listen on; overrides listen in the configuration file")
	root.AddCommand(
		checkCommand(stdout, &o.file),
		loginCommand(stdin, stdout, stderr, &o.file),
		logoutCommand(stdout, &o.file),
		bridge.Command(stdin, stdout, stderr, &o.file, serveOwn),
		&cobra.Command{
			Use: "demo", Short: "Run the built-in demo MCP server on stdio", Args: cli.NoArguments,
			RunE: func(cmd *cobra.Command, _ []string) error {
				return demo.Serve(cmd.Context(), stdin, stdout,
					stderr)
			},
		},
		versionCommand(stdout),
	)
	root.AddCommand(cli.OfFile(service.Command(stdout, stderr, &o.file, services()))...)
	root.AddCommand(entries.Commands(stdout, &o.file)...)
	root.AddCommand(setup.Commands(stdout, stderr, &o.file)...)
	root.AddCommand(call.Commands(stdout, &o.file)...)
	root.AddCommand(admin.Commands(stdout, version(), &o.file, call.CompleteTools(&o.file), setup.KeyFaults)...)
	root.AddCommand(audit.Command(stdout, stderr, &o.file), packs.Command(stdout, &o.file))
	root.AddCommand(signins.Commands(stdin, stdout, stderr, &o.file)...)
	root.SetHelpCommand(helpCommand(root))
	cli.SetHelp(root)
	return root
}

// checkCommand is `junction check`.
func checkCommand(stdout io.Writer, file *string) *cobra.Command {
	var asJSON bool
	var old string
	cmd := &cobra.Command{
		Use: "check", Short: "Validate a configuration file", Args: cli.NoArguments,
		Long: `Validate a configuration file. With --against, also tell what a reload changes: which upstreams and keys,
and which changes wait for a restart.`,
		Example: `  junction check --config config.yaml
  junction check --config next.yaml --against config.yaml`,
		RunE: func(*cobra.Command, []string) error {
			if *file == "" {
				return cli.Usagef("check needs --config FILE")
			}
			report, err := config.Inspect(*file, os.LookupEnv)
			if err != nil {
				return err
			}
			_, report.Served = runfile.Find(*file)
			if old != "" {
				if report.Reload, err = config.Compare(old, *file, os.LookupEnv); err != nil {
					err = fmt.Errorf("--against: %w", err)
				}
			}
			if asJSON {
				return errors.Join(cli.PrintValue(stdout, report), report.Err(), err)
			}
			var text bytes.Buffer
			mistakes := report.Print(&text)
			return errors.Join(cli.Tell(stdout, text.String()), mistakes, err)
		},
	}
	cmd.Flags().StringVar(&old, "against", "", "the `FILE` that a running Junction has in force")
	cli.JSONFlag(cmd, &asJSON)
	return cmd
}

// helpCommand is `junction help`. That of cobra ignores unknown commands.
func helpCommand(root *cobra.Command) *cobra.Command {
	return &cobra.Command{
		Use: "help [COMMAND]", Short: "Show help for a command",
		RunE: func(_ *cobra.Command, args []string) error {
			cmd, rest, err := root.Find(args)
			switch {
			case len(rest) > 0:
				return cli.UnknownCommand(cmd, rest[0])
			case err != nil:
				return cli.Usagef("%w", err)
			}
			cmd.InitDefaultHelpFlag()
			return cmd.Help()
		},
	}
}

// userFile returns the configuration file of the user, or "" if there is none.
func userFile() string {
	file, err := config.File("")
	if err != nil {
		return ""
	}
	if _, err := os.Stat(file); errors.Is(err, fs.ErrNotExist) {
		return ""
	}
	return file
}
