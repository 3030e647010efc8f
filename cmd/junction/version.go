package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"junction/cmd/build"
	"junction/cmd/junction/base/cli"
)

// latest is the URL of a file with the newest version. A release sets it with the linker; it is never
// changed while the program runs.
var latest string

// versionCommand is `junction version`. It connects to another machine only with --check.
func versionCommand(stdout io.Writer, latest string) *cobra.Command {
	var asJSON, check bool
	cmd := &cobra.Command{
		Use: "version", Short: "Print the version, the commit and its date", Args: cli.NoArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			answer := struct {
				build.Build
				Newest string `json:"newest,omitempty"`
			}{Build: build.Read()}
			text := answer.Text("junction")
			if check {
				var err error
				if answer.Newest, err = newest(cmd.Context(), latest); err != nil {
					return err
				}
				if answer.Newest == answer.Version {
					text += "this is the newest version\n"
				} else {
					text += "the newest version is " + answer.Newest + "\n"
				}
			}
			return cli.Print(stdout, asJSON, answer, text)
		},
	}
	cli.JSONFlag(cmd, &asJSON)
	cmd.Flags().BoolVar(&check, "check", false, "ask the server of the releases for the newest version")
	return cmd
}

// aVersion matches a version of a release.
var aVersion = regexp.MustCompile(`^v?([0-9]{1,6}\.[0-9]{1,6}\.[0-9]{1,6})$`)

// newest asks for the newest version, without its v. It sends nothing but the request.
func newest(ctx context.Context, address string) (string, error) {
	if address == "" {
		return "", fmt.Errorf("cannot check for a newer version: this program is not of a release; " +
			"look where you got it")
	}
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return "", err
	}
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		return "", fmt.Errorf("cannot check for a newer version: %w", err)
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		return "", fmt.Errorf("cannot check for a newer version: %s answers %s", address, answer.Status)
	}
	text, err := io.ReadAll(io.LimitReader(answer.Body, 64))
	if err != nil {
		return "", fmt.Errorf("cannot check for a newer version: %w", err)
	}
	m := aVersion.FindStringSubmatch(strings.TrimSpace(string(text)))
	if m == nil {
		return "", fmt.Errorf("cannot check for a newer version: the answer of %s is not a version", address)
	}
	return m[1], nil
}
