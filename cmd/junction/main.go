// Command junction serves many MCP servers behind one MCP URL.
//
// main.go has the flags and the exit codes. The rest lies in four wings, of which each knows only those
// after it: serve is the running program; desk is one person's machine, with its clients and the service
// in the background; ops is for operators, with diagnosis, pages, audit and the storage of sign-ins; base
// has what they share: the configuration, the record of what runs where, the log, telemetry, and the
// plumbing of commands (cli). deploy has recipes, and demo the demo server.
package main

import (
	"context"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"junction/cmd/build"
	"junction/cmd/junction/base/cli"
	"junction/cmd/junction/base/config"
	"junction/cmd/junction/demo"
	"junction/cmd/junction/desk/bridge"
	"junction/cmd/junction/desk/call"
	"junction/cmd/junction/desk/entries"
	"junction/cmd/junction/desk/folders"
	"junction/cmd/junction/desk/packs"
	"junction/cmd/junction/desk/service"
	"junction/cmd/junction/desk/setup"
	"junction/cmd/junction/ops/admin"
	"junction/cmd/junction/ops/audit"
	"junction/cmd/junction/ops/signins"
	"junction/cmd/junction/serve"
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
	var file, listen string
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
		Version:       build.Read().Version,
		SilenceErrors: true,
		SilenceUsage:  true,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return nil
			}
			return cli.UnknownCommand(cmd, args[0])
		},
		RunE: func(cmd *cobra.Command, _ []string) error {
			return serve.Run(cmd.Context(), file, listen, stdout, stderr)
		},
	}
	root.SetVersionTemplate("junction {{.Version}}\n")
	root.PersistentFlags().StringVar(&file, "config", "",
		"configuration `file` (default: junction/config.yaml in the user's folder for configurations, if it exists)")
	root.PersistentPreRunE = func(cmd *cobra.Command, _ []string) error {
		if !cmd.Flags().Changed("config") {
			file = config.UserFile()
		}
		return cli.CheckFile(cmd, file)
	}
	root.Flags().StringVar(&listen, "listen", "",
		"`address` to listen on; overrides listen in the configuration file")
	root.AddCommand(
		serve.LoginCommand(stdin, stdout, stderr, &file),
		serve.LogoutCommand(stdout, &file),
		serve.ReplicasCommand(stdout, &file),
		bridge.Command(stdin, stdout, stderr, &file, serve.Own),
		&cobra.Command{
			Use: "demo", Short: "Run the built-in demo MCP server on stdio", Args: cli.NoArguments,
			RunE: func(cmd *cobra.Command, _ []string) error {
				return demo.Serve(cmd.Context(), stdin, stdout,
					stderr)
			},
		},
		versionCommand(stdout, latest),
	)
	root.AddCommand(cli.OfFile(service.Command(stdout, stderr, &file, serve.Services(), setup.Moved),
		service.LogsCommand(stdout, stderr, &file))...)
	root.AddCommand(entries.Commands(stdout, &file)...)
	root.AddCommand(setup.Commands(stdout, stderr, &file)...)
	root.AddCommand(call.Commands(stdout, &file)...)
	root.AddCommand(admin.Commands(stdout, build.Read().Version, &file, call.CompleteTools(&file), serve.Foresight(),
		admin.Connected{Faults: setup.ClientFaults, Moved: setup.Moved})...)
	root.AddCommand(audit.Command(stdout, stderr, &file), packs.Command(stdout, &file))
	root.AddCommand(cli.OfFile(folders.Command(stdout, &file))...)
	root.AddCommand(signins.Commands(stdin, stdout, stderr, &file)...)
	root.AddCommand(manCommand(stdout, root))
	root.SetHelpCommand(helpCommand(root))
	cli.SetHelp(root)
	return root
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
