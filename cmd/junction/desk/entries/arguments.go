package entries

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"junction/cmd/junction/base/cli"
	"junction/cmd/junction/desk/clients"
	"junction/upstream/loopback"
	"junction/upstream/prose"
	"junction/upstream/shell"
)

// This file reads the arguments of junction add.

// addUsage are the forms of the arguments.
const addUsage = "write junction add NAME -- COMMAND, junction add NAME URL, junction add NAME FOLDER, or " +
	"junction add SERVER"

// arguments reads the name of the upstream, and its command, URL or name in the registry.
func (a *adder) arguments(args []string, dash int) (name string, err error) {
	switch {
	case dash >= 0:
		return a.withCommand(args, dash)
	case len(args) == 1:
		return a.withServer(args[0])
	case len(args) == 2:
		return args[0], a.withAddress(args[0], args[1])
	case len(args) > 2:
		return "", noURL(args[0], args[1:])
	}
	return "", cli.Usagef("%s", addUsage)
}

// withCommand reads a name and a command behind --.
func (a *adder) withCommand(args []string, dash int) (name string, err error) {
	switch {
	case dash != 1 || len(args) < 2:
		return "", cli.Usagef("give one name before -- and a command after it; %s", addUsage)
	case len(args) == 2 && clients.Words(args[1]) != nil:
		return "", cli.Usagef("%s is one word; write junction add %s -- %s", prose.Quote(args[1]), shell.Quote(args[0]),
			shell.Join(clients.Words(args[1])...))
	}
	a.given.Command = args[1:]
	if a.given.Folder, err = os.Getwd(); err != nil {
		return "", fmt.Errorf("cannot find the current folder: %w", err)
	}
	if program := args[1]; strings.HasPrefix(program, "./") || strings.HasPrefix(program, "../") {
		if a.given.Command[0], err = filepath.Abs(program); err != nil {
			return "", err
		}
	}
	return args[0], nil
}

// withServer reads the name of a server of the registry, which also names the upstream.
func (a *adder) withServer(word string) (name string, err error) {
	switch {
	case isPath(word):
		return "", cli.Usagef("the folder needs a name before it: junction add NAME FOLDER")
	case isURL(word):
		return "", cli.Usagef("the URL needs a name before it: junction add NAME URL")
	case a.registry == "" && isHost(word):
		return "", noScheme("NAME", word)
	case registryName.MatchString(word):
		a.server = word
		return nameOf(word), nil
	}
	return "", cli.Usagef("%s", addUsage)
}

// withAddress reads the URL, the folder or the server of the registry behind a name.
func (a *adder) withAddress(name, word string) error {
	switch {
	case isURL(word):
		a.given.URL = word
	case isPath(word):
		a.given.Pack, a.folder = word, word
	case isFolder(word):
		return cli.Usagef("%s is a folder; write junction add %s %s", prose.Quote(word), shell.Quote(name),
			shell.Quote("./"+filepath.ToSlash(word)))
	case a.registry == "" && isHost(word):
		return noScheme(shell.Quote(name), word)
	case registryName.MatchString(word):
		a.server = word
	case strings.Contains(word, "://"):
		scheme, _, _ := strings.Cut(word, "://")
		return cli.Usagef("the URL has the scheme %s; a server is reached by http or https", prose.OneLine(scheme))
	case withoutScheme.MatchString(word):
		return cli.Usagef("%s lacks the scheme of a URL; write junction add %s %s", prose.Quote(word),
			shell.Quote(name), shell.Quote(withScheme(word)))
	default:
		return noURL(name, []string{word})
	}
	return nil
}

// noURL is the error for words behind a name that may be a command.
func noURL(name string, words []string) error {
	return cli.Usagef("%s is no URL; a command stands after --: junction add %s -- %s", prose.Quote(words[0]),
		shell.Quote(name), shell.Join(words...))
}

// noScheme is the error for a host, which has the form of a name of the registry.
func noScheme(name, word string) error {
	return cli.Usagef("%s is the address of a server, without the scheme of a URL; write junction add %s %s, "+
		"or, for a name of a registry, add --registry URL", prose.Quote(word), name, shell.Quote(withScheme(word)))
}

// withoutScheme matches an address or a host with a dot, its port, and perhaps a path.
var withoutScheme = regexp.MustCompile(`^(localhost|\[[0-9a-fA-F:]+\]|[a-zA-Z0-9-]+(\.[a-zA-Z0-9-]+)+):[0-9]+(/\S*)?$`)

// isHost reports whether a word with the form of a name of the registry is a host and a path. A name of the
// registry begins with a reversed domain, such as io.github.owner, and a host ends with a top-level domain. If
// this is not certain, the registry is asked.
func isHost(s string) bool {
	host, _, _ := strings.Cut(strings.ToLower(s), "/")
	last := host[strings.LastIndexByte(host, '.')+1:]
	return registryName.MatchString(s) && mayBeHost(s) && topLevel(last)
}

// mayBeHost reports whether a word has a dot before the first slash, and does not begin with a reversed domain.
func mayBeHost(s string) bool {
	host, _, _ := strings.Cut(strings.ToLower(s), "/")
	first, _, dotted := strings.Cut(host, ".")
	return dotted && !topLevel(first)
}

// topLevel reports whether a label is a top-level domain that many servers have.
func topLevel(label string) bool {
	return len(label) == 2 || slices.Contains([]string{"com", "org", "net", "edu", "gov", "info", "dev", "app", "cloud",
		"tech", "software", "tools", "xyz"}, label)
}

// withScheme returns the URL of a host with a port: http on this machine, https elsewhere.
func withScheme(s string) string {
	if host, _, _ := strings.Cut(s, "/"); loopback.Address(strings.Replace(host, "localhost", "127.0.0.1", 1)) {
		return "http://" + s
	}
	return "https://" + s
}

// isFolder reports whether there is a folder of that name, which is not a path by its form.
func isFolder(s string) bool {
	info, err := os.Stat(s)
	return err == nil && info.IsDir()
}

// isPath reports whether an argument is the path of a pack. Other words may be names of the registry.
func isPath(s string) bool {
	slashed := filepath.ToSlash(s)
	return filepath.IsAbs(s) || slices.ContainsFunc([]string{"./", "../", "~/"}, func(begin string) bool {
		return strings.HasPrefix(slashed+"/", begin)
	})
}

// packPath returns the path of a pack for the file, which has it relative to its own folder.
func packPath(path string, f *file) (string, error) {
	if rest, ok := strings.CutPrefix(path, "~/"); ok {
		path = filepath.Join(f.home.Dir, rest)
	}
	full, err := filepath.Abs(path)
	if err != nil {
		return "", err
	}
	if _, err := os.Stat(full); err != nil {
		return "", fmt.Errorf("there is no pack at %s; make one with: %s", prose.OneLine(path),
			shell.Join("junction-pack", "init", path))
	}
	own, err := filepath.Abs(filepath.Dir(f.path))
	if err != nil {
		return "", err
	}
	if rest, err := filepath.Rel(own, full); err == nil && filepath.IsLocal(rest) && rest != "." {
		return "./" + filepath.ToSlash(rest), nil
	}
	return full, nil
}

func isURL(s string) bool {
	return strings.HasPrefix(s, "http://") || strings.HasPrefix(s, "https://")
}
