// Package folders has the command junction folders, which keeps the list of folders that clients may name.
package folders

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"junction/cmd/junction/base/cli"
	"junction/cmd/junction/base/config"
	"junction/upstream/folder"
	"junction/upstream/prose"
)

// Command is `junction folders`.
func Command(stdout io.Writer, file *string) *cobra.Command {
	var output string
	list := func(*cobra.Command, []string) error { return printList(stdout, *file, output) }
	cmd := &cobra.Command{
		Use:   "folders",
		Short: "Permit the folders that clients may name",
		Long: `List, permit and forget the folders that clients may name, for upstreams with isolation: folder.

A client may name a permitted folder, and every folder in it. Every program that can call Junction can name each
of them. The list is a file of Junction's state, beside that of the configuration (folders.within); the running
Junction uses a change at the next call.`,
		Example: `  junction folders allow ~/src
  junction folders list
  junction folders forget ~/src`,
		Args: cli.NoArguments, RunE: list,
	}
	listed := &cobra.Command{Use: "list", Short: "List the permitted folders", Args: cli.NoArguments, RunE: list}
	for _, c := range []*cobra.Command{cmd, listed} {
		cli.OutputFlag(c, &output)
	}
	allow := &cobra.Command{
		Use: "allow PATH ...", Short: "Permit folders, with every folder in them",
		Args: needsPaths,
		RunE: func(cmd *cobra.Command, paths []string) error {
			return allow(cmd.Context(), stdout, *file, paths, output)
		},
	}
	forget := &cobra.Command{
		Use: "forget PATH ...", Short: "Remove folders from the list",
		Args: needsPaths,
		RunE: func(cmd *cobra.Command, paths []string) error {
			return forget(cmd.Context(), stdout, *file, paths, output)
		},
	}
	for _, c := range []*cobra.Command{allow, forget} {
		cli.OutputFlag(c, &output)
	}
	cmd.AddCommand(listed, allow, forget)
	return cmd
}

func needsPaths(cmd *cobra.Command, paths []string) error {
	switch {
	case len(paths) == 0:
		return cli.Usagef("folders %s needs the paths of folders", cmd.Name())
	case slices.Contains(paths, ""): // a variable of the shell that is not set
		return cli.Usagef("folders %s needs the path of a folder, and one is empty; write . for the current folder",
			cmd.Name())
	}
	return nil
}

// open returns the configuration and the list of its permitted folders.
func open(file string) (*config.Config, *folder.List, error) {
	if file == "" {
		return nil, nil, errors.New("there is no configuration file yet; junction setup makes it, or name a file " +
			"with --config")
	}
	c, err := config.LoadForCommand(file, "folders", "sessions")
	if err != nil {
		return nil, nil, err
	}
	list, err := c.PermittedFolders(file, os.LookupEnv)
	return c, list, err
}

// absolute returns the paths as Junction compares them. A relative one is in the folder of the shell.
func absolute(paths []string) (list []string, err error) {
	for _, path := range paths {
		abs, err := filepath.Abs(path)
		if err != nil {
			return nil, err
		}
		list = append(list, abs)
	}
	return list, nil
}

// A row is a folder in the output.
type row struct {
	Path string `json:"path"`
	Real string `json:"real,omitempty"` // without links, if it is another path
	From string `json:"from"`           // "list", or the key of the configuration
}

const (
	fromCommand = "list" // junction folders allow, setup, import and add write it
	fromFile    = "folders.within"
)

func rowsOf(roots []folder.Root) (rows []row) {
	for _, r := range roots {
		one := row{Path: r.Name, From: fromCommand}
		if r.Real != r.Name {
			one.Real = r.Real
		}
		rows = append(rows, one)
	}
	return rows
}

func printList(stdout io.Writer, file, output string) error {
	if err := cli.CheckOutput(output); err != nil {
		return err
	}
	c, list, err := open(file)
	if err != nil {
		return err
	}
	roots, err := list.Roots()
	if err != nil {
		return err
	}
	var rows []row
	for _, path := range c.Folders.Within {
		rows = append(rows, row{Path: path, From: fromFile})
	}
	return cli.List[row]{Name: "folders", Of: append(rows, rowsOf(roots)...), Head: []any{"FOLDER", "PERMITTED BY"},
		None: "clients may name no folder; " + config.Command(file, "folders", "allow", "PATH") + " permits one",
		Cells: func(r row) []any {
			path := cli.Harmless(r.Path)
			if r.Real != "" {
				path += " (" + cli.Harmless(r.Real) + ")"
			}
			by := "you (setup, or junction folders allow)"
			if r.From == fromFile {
				by = "the configuration (" + fromFile + ")"
			}
			return []any{path, by}
		}}.Print(stdout, output == "json")
}

// changed prints what a command changed.
func changed(stdout io.Writer, output, key string, roots []folder.Root, text string) error {
	rows := append([]row{}, rowsOf(roots)...)
	return cli.Print(stdout, output == "json", map[string][]row{key: rows}, text+"\n")
}

func names(roots []folder.Root) string {
	var list []string
	for _, r := range roots {
		name := prose.Quote(r.Name)
		if r.Real != r.Name {
			name += " (" + prose.Quote(r.Real) + ")"
		}
		list = append(list, name)
	}
	return strings.Join(list, ", ")
}

func allow(ctx context.Context, stdout io.Writer, file string, paths []string, output string) error {
	if err := cli.CheckOutput(output); err != nil {
		return err
	}
	c, _, err := open(file)
	if err != nil {
		return err
	}
	if paths, err = absolute(paths); err != nil {
		return err
	}
	added, err := c.AllowFolders(ctx, file, os.LookupEnv, paths...)
	if err != nil {
		return err
	}
	text := "nothing has changed: these folders are permitted already"
	if len(added) > 0 {
		text = "clients may name " + names(added) + " and every folder in it, from the next call on"
		if len(added) > 1 {
			text = "clients may name " + names(added) + " and every folder in them, from the next call on"
		}
	}
	return changed(stdout, output, "allowed", added, text)
}

func forget(ctx context.Context, stdout io.Writer, file string, paths []string, output string) error {
	if err := cli.CheckOutput(output); err != nil {
		return err
	}
	c, list, err := open(file)
	if err != nil {
		return err
	}
	if paths, err = absolute(paths); err != nil {
		return err
	}
	removed, err := list.Forget(ctx, paths...)
	if err != nil {
		return err
	}
	for _, path := range paths {
		for _, within := range c.Folders.Within {
			if folder.Contains(filepath.Clean(within), path) {
				return fmt.Errorf("%s permits %s (folders.within); remove it there", file, prose.Quote(within))
			}
		}
	}
	if len(removed) == 0 {
		return fmt.Errorf("the list does not have %s; %s shows it", prose.Quote(paths[0]),
			config.Command(file, "folders", "list"))
	}
	return changed(stdout, output, "forgotten", removed, "forgotten: "+names(removed)+
		"; a process in the folder ends when it is idle, and gets no further call")
}
