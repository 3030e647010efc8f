package bridge

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"junction/cmd/junction/base/cli"
	"junction/cmd/junction/desk/call"
	"junction/cmd/junction/desk/clients"
	"junction/upstream/transport"
)

// Own serves a configuration file for this process alone, unless a running junction serves the file:
// then the URL is "".
type Own func(ctx context.Context, file string, stderr io.Writer) (url string, end func() error, err error)

// Command returns the command stdio. file points to the value of --config.
func Command(stdin io.Reader, stdout, stderr io.Writer, file *string, own Own) *cobra.Command {
	var address, keyFile, folder string
	cmd := &cobra.Command{
		Use: "stdio", Short: "Connect a client that only starts commands to a running endpoint", Args: cli.NoArguments,
		Long: `Connect a client that only starts commands to a running endpoint.

The client speaks MCP on standard input and output; the command passes each message to the endpoint. If the
endpoint cannot be reached, requests fail with an error, and work again when the endpoint is back. The command
writes its problems to standard error.

With --config FILE, if no running junction serves the file, the command serves the file itself, for this client
alone, until the client ends.

An endpoint on this machine gets the folder in which the client has started the command, unless that is the home
folder or the root; --folder names another one. Servers with isolation: folder run in this folder.

If the endpoint requires a sign-in and there is no API key, the command opens a browser. All commands of this user
share the sign-in, which is kept in a file that only the user can read.`,
		Example: `  junction stdio
  junction stdio --config team.yaml
  junction stdio --url https://mcp.example.com/mcp --key-file ~/.junction-key`,
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			absent := whenAbsent(cmd.Context(), address, *file)
			credential, err := credentialOf(address, keyFile)
			if err != nil {
				return err
			}
			if address == "" && *file != "" && cmd.Flags().Changed("config") {
				var end func() error
				if address, end, err = own(cmd.Context(), *file, stderr); err != nil {
					return err
				}
				defer func() { err = errors.Join(err, end()) }()
			}
			if address == "" {
				if address, err = call.EndpointOf(cmd.Context(), *file); err != nil {
					return err
				}
			}
			if err := call.CheckURL(address, credential != nil); err != nil {
				return err
			}
			if credential == nil && call.CheckURL(address, true) == nil {
				if credential, err = call.PersonalToken(address, true, stderr); err != nil {
					return err
				}
			}
			headers, err := call.FolderHeader(folder, address)
			if err != nil {
				return err
			}
			return Run(cmd.Context(), Options{
				URL: address, Headers: headers, Token: credential, In: stdin, Out: stdout, Notes: stderr,
				Absent: absent,
			})
		},
	}
	cmd.Flags().StringVar(&address, "url", "", "`URL` of the endpoint (default: that of the running junction)")
	cmd.Flags().StringVar(&keyFile, "key-file", "", "`file` with the API key (default: $"+clients.KeyVariable+
		" is the key)")
	cmd.Flags().StringVar(&folder, "folder", "", "the `folder` of the client's project (default, for an endpoint on "+
		"this machine: the working directory)")
	return cmd
}

// whenAbsent returns what to do if nothing listens at the URL of --url; "" is no such flag. A user who has no file that
// serves it cannot start it.
func whenAbsent(ctx context.Context, url, file string) string {
	own := ""
	if file != "" {
		own, _ = call.EndpointOf(ctx, file)
	}
	switch {
	case url == "" && file == "":
		return "set one up with: junction setup; for the Junction of a team, give its address with --url"
	case url != "" && url != own:
		return "ask the operator of this address to start it, or for its new address"
	}
	return ""
}

// credentialOf returns the source of the API key: the file, or the environment. It is nil if there is
// no key. url is that of --url, or "". After the endpoint has refused the key, the file is read again: the
// key may have been replaced.
func credentialOf(url, file string) (func(context.Context, ...string) (string, error), error) {
	read := func() (string, error) { return strings.TrimSpace(os.Getenv(clients.KeyVariable)), nil }
	renew := "set " + clients.KeyVariable + " to it, and restart the client"
	if file != "" {
		renew = "write it into " + file
		if client := clients.OfKeyFile(file); client != "" && url != "" {
			renew = "run: " + clients.KeyVariable + "=NEW-KEY " + "junction connect " + client + " --url " + url
		}
		read = func() (string, error) {
			text, err := os.ReadFile(file)
			if err != nil {
				return "", fmt.Errorf("--key-file: %w; write the API key into it", err)
			}
			return strings.TrimSpace(string(text)), nil
		}
	}
	key, err := read()
	switch {
	case err != nil:
		return nil, err
	case key == "" && file != "":
		return nil, fmt.Errorf("--key-file: %s is empty", file)
	case key == "":
		return nil, nil
	}
	return func(_ context.Context, refused ...string) (string, error) {
		key, err := read()
		if err == nil && slices.Contains(refused, key) {
			err = fmt.Errorf("the endpoint does not accept the API key; get a new one from the operator of "+
				"Junction (junction keys create), and %s", renew)
		}
		if err != nil {
			return "", &transport.TokenError{Err: err}
		}
		return key, nil
	}, nil
}
