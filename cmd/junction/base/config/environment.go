package config

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"junction/upstream/files"
	"junction/upstream/shell"
	"junction/upstream/yamlread"
)

// EnvironmentOf returns the file with the variables of the service of a configuration file. Its name has
// that of the configuration file, so that two of them in one folder share nothing.
func EnvironmentOf(file string) string { return file + EnvironmentEnd }

// MaxEnvironment is the most bytes of the file with the variables.
const MaxEnvironment = 64 << 10

// inEnvironment reports whether the file with the variables of the service sets one.
func inEnvironment(file, name string) bool {
	if file == "" {
		return false
	}
	all, err := Environment(file)
	_, has := all[name]
	return err == nil && has
}

// ReadableEnvironment returns the warning of a file with variables that other users of this machine can read; ""
// if only its owner can, or without such a file.
func ReadableEnvironment(file string) string {
	name := EnvironmentOf(file)
	if !files.Readable(name) {
		return ""
	}
	return fmt.Sprintf("other users of this machine can read %s, which has the variables of servers, such as tokens; "+
		"run: chmod 600 %s", name, shell.Quote(name))
}

// UseEnvironment sets the variables of the service of a configuration file in this process, so that a command has
// what the service has: the values of references, and the certificate authorities (SSL_CERT_FILE), which Go reads
// once. Call it before anything connects with TLS. It returns the file with the variables; "" if there is none.
func UseEnvironment(file string) (name string, err error) {
	path, err := filepath.Abs(file)
	if err != nil {
		return "", err
	}
	all, err := Environment(path)
	if err != nil {
		return "", fmt.Errorf("%w; the service does not start with this line", err)
	}
	if all == nil {
		return "", nil
	}
	name = EnvironmentOf(path)
	err = os.Setenv(ServiceVariables, name)
	for variable, value := range all {
		err = errors.Join(err, os.Setenv(variable, value))
	}
	return name, err
}

// Environment reads the variables of the service of a configuration file: lines NAME=VALUE, and comments. It
// returns nil if there is no such file.
func Environment(file string) (map[string]string, error) {
	name := EnvironmentOf(file)
	text, err := files.Read(name, MaxEnvironment)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("cannot read %s: %w", name, files.Reason(err))
	}
	all := map[string]string{}
	for n, line := range strings.Split(string(text), "\n") {
		if line = strings.TrimSpace(line); line == "" || line[0] == '#' {
			continue
		}
		key, value, ok := strings.Cut(line, "=")
		if !ok || !yamlread.IsVariable(key) {
			return nil, fmt.Errorf("cannot read %s line %d: write NAME=VALUE", name, n+1)
		}
		all[key] = value
	}
	return all, nil
}
