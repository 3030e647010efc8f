package main

import (
	"encoding/json"
	"fmt"
	"io"
	"runtime"
	"runtime/debug"
	"strings"

	"github.com/spf13/cobra"

	"junction/cmd/junction/cli"
)

// versionCommand is `junction version`.
func versionCommand(stdout io.Writer) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use: "version", Short: "Print the version, the commit and its date", Args: cli.NoArguments,
		RunE: func(*cobra.Command, []string) error {
			b := readBuild(debug.ReadBuildInfo())
			if asJSON {
				text, err := json.Marshal(b)
				if err != nil {
					return err
				}
				return cli.PrintJSON(stdout, text)
			}
			_, err := io.WriteString(stdout, b.String())
			return err
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

// build is where the program comes from. Commit and Date are empty if it was built outside of a
// repository.
type build struct {
	Version  string `json:"version"` // the tag, or the commit
	Commit   string `json:"commit,omitempty"`
	Date     string `json:"date,omitempty"`     // of the commit
	Modified bool   `json:"modified,omitempty"` // there were uncommitted changes
	Go       string `json:"go"`
	Platform string `json:"platform"`
}

func readBuild(info *debug.BuildInfo, ok bool) build {
	b := build{Version: "devel", Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH}
	if !ok {
		return b
	}
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			b.Commit = s.Value
		case "vcs.time":
			b.Date = s.Value
		case "vcs.modified":
			b.Modified = s.Value == "true"
		}
	}
	if v := info.Main.Version; v != "" && v != "(devel)" {
		b.Version = strings.TrimPrefix(v, "v")
	} else if len(b.Commit) >= 12 {
		b.Version += "-" + b.Commit[:12]
	}
	return b
}

// String returns the lines of `junction version`.
func (b build) String() string {
	commit := "commit unknown: built outside of a git repository"
	if b.Commit != "" {
		commit = fmt.Sprintf("commit %s of %s", b.Commit, b.Date)
	}
	if b.Modified {
		commit += ", with uncommitted changes"
	}
	return fmt.Sprintf("junction %s\n%s\nbuilt with %s for %s\n", b.Version, commit, b.Go, b.Platform)
}

// version returns the tag or the commit that the program was built from.
func version() string { return readBuild(debug.ReadBuildInfo()).Version }
