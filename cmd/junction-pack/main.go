// Command junction-pack is an MCP server whose tools are described by a manifest. It is independent
// of the program junction, which runs it for an upstream with the key pack. Neither program imports
// packages of the other: package pack and the packages below it have what both know about packs.
//
// Package cli has the commands, and package serve serves a pack.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"junction/cmd/build"
	"junction/cmd/junction-pack/cli"
	"junction/upstream/sandbox"
)

func main() {
	if len(os.Args) > 1 && os.Args[1] == sandbox.Word {
		os.Exit(sandbox.Main())
	}
	sandbox.HideEnvironment() // it may have the credentials of a pack
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal ends the program at once
	code := cli.Run(ctx, rootCommand(), os.Args[1:], os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

func rootCommand() *cobra.Command {
	root := &cobra.Command{
		Use:   "junction-pack",
		Short: "Serve tools that a manifest describes",
		Long: `Junction-pack is an MCP server. A manifest (YAML) describes its tools.

PATH is a manifest, or a folder with pack.yaml and files that end in .pack.yaml.`,
		Example: `  junction-pack init packs/dev
  junction-pack check packs/dev
  junction-pack call packs/dev search text=hello
  junction-pack serve packs/dev`,
		Version:       build.Read().Version,
		SilenceErrors: true, SilenceUsage: true,
		CompletionOptions: cobra.CompletionOptions{HiddenDefaultCmd: true},
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 0 {
				return cli.Usagef("there is no command %q", args[0])
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	root.SetVersionTemplate("junction-pack {{.Version}}\n")
	root.AddCommand(serveCommand(), callCommand(),
		&cobra.Command{
			Use: "check PATH", Short: "Validate the manifests", Args: cli.Arguments(1, 1),
			RunE: func(cmd *cobra.Command, args []string) error {
				return cli.Check(cmd.Context(), os.Stdout, args[0])
			},
		},
		shown("list PATH", "List the tools", 1, 1, func(ctx context.Context, args []string, asJSON bool) error {
			return cli.List(ctx, os.Stdout, args[0], asJSON)
		}),
		shown("show PATH [TOOL]", "Show what the pack or a tool runs, sends and reads", 1, 2,
			func(ctx context.Context, args []string, asJSON bool) error {
				if len(args) == 1 {
					return cli.ShowPack(ctx, os.Stdout, args[0], asJSON)
				}
				return cli.Show(ctx, os.Stdout, args[0], args[1], asJSON)
			}),
		&cobra.Command{
			Use: "init DIR", Short: "Write an example manifest into a folder", Args: cli.Arguments(1, 1),
			RunE: func(_ *cobra.Command, args []string) error { return cli.Init(os.Stdout, args[0]) },
		},
	)
	return root
}

func serveCommand() *cobra.Command {
	o := cli.ServeOptions{Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr}
	c := &cobra.Command{
		Use: "serve PATH", Short: "Serve the tools on stdio, or over HTTP", Args: cli.Arguments(1, 1),
		RunE: func(cmd *cobra.Command, args []string) error { return cli.Serve(cmd.Context(), args[0], o) },
	}
	c.Flags().StringVar(&o.Checksum, "checksum", "",
		"refuse the pack unless its folder has this `checksum` (packs.lock of Junction)")
	c.Flags().BoolVar(&o.Priorities, "log-priority", false,
		"begin each line of the log with its priority, as in <3>, for systemd and Junction")
	c.Flags().StringArrayVar(&o.Enable, "enable", nil,
		"serve also turned off tools whose names match this `glob`; the flag can be repeated")
	c.Flags().StringVar(&o.Address, "http", "",
		"loopback `address` for Streamable HTTP instead of stdio, such as 127.0.0.1:8430")
	return c
}

func callCommand() *cobra.Command {
	whole, output := "", "text"
	c := &cobra.Command{
		Use: "call PATH TOOL [KEY=VALUE ...]", Short: "Call a tool and print its result", Args: cli.Arguments(2, -1),
		RunE: func(cmd *cobra.Command, args []string) error {
			asJSON, err := isJSON(output)
			if err != nil {
				return err
			}
			return cli.Call(cmd.Context(), os.Stdout, os.Stderr, args[0], args[1], args[2:], whole, asJSON)
		},
	}
	c.Flags().StringVar(&whole, "json", "", "all arguments as a JSON `object`")
	c.Flags().StringVar(&output, "output", output, "`format` of the result: text or json")
	return c
}

// shown returns a command that prints text or JSON.
func shown(use, short string, least, most int,
	run func(ctx context.Context, args []string, asJSON bool) error) *cobra.Command {
	output := "text"
	c := &cobra.Command{Use: use, Short: short, Args: cli.Arguments(least, most),
		RunE: func(cmd *cobra.Command, args []string) error {
			asJSON, err := isJSON(output)
			if err != nil {
				return err
			}
			return run(cmd.Context(), args, asJSON)
		}}
	c.Flags().StringVar(&output, "output", output, "`format`: text or json")
	return c
}

func isJSON(output string) (bool, error) {
	if output != "text" && output != "json" {
		return false, cli.Usagef("--output is text or json, not %q", output)
	}
	return output == "json", nil
}
