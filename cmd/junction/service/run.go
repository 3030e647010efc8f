package service

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/spf13/cobra"

	"junction/cmd/junction/cli"
	"junction/cmd/junction/clients"
	"junction/cmd/junction/config"
	"junction/upstream/files"
)

// Serve runs a proxy for a configuration file until ctx ends. If the file has a mistake, it serves the
// last content of the file that was in force.
type Serve func(ctx context.Context, file string, stdout, stderr io.Writer) error

// runService is `junction service run`, the process of a service.
func runService(stdout, stderr io.Writer, file *string, serve Serve) *cobra.Command {
	var log string
	cmd := &cobra.Command{
		Use: "run", Short: "Serve as a service does", Args: cli.NoArguments, Hidden: true,
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			h, err := ThisHost()
			if err != nil {
				return err
			}
			path, err := config.File(*file)
			if err != nil {
				return err
			}
			h.clearFailure(path)
			defer func() {
				if err != nil {
					h.noteFailure(path, err)
				}
			}()
			if err := useEnvironment(path); err != nil {
				return err
			}
			out, errs := stdout, stderr
			if log != "" {
				l, err := openLog(log)
				if err != nil {
					return err
				}
				defer l.close()
				defer func() {
					if err != nil {
						fmt.Fprintln(l, err)
					}
				}()
				out, errs = l, l
			}
			return serve(cmd.Context(), path, out, errs)
		},
	}
	cmd.Flags().StringVar(&log, "log", "", "`file` for the log")
	return cmd
}

// EnvironmentOf returns the file with the variables of the service of a configuration file. Its name has
// that of the configuration file, so that two of them in one folder share nothing.
func EnvironmentOf(file string) string { return file + ".environment" }

// maxEnvironment is the most bytes of the file with the variables.
const maxEnvironment = 64 << 10

var variableName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)

// environment reads the variables of the service: lines NAME=VALUE, and comments.
func environment(file string) (map[string]string, error) {
	name := EnvironmentOf(file)
	text, err := files.Read(name, maxEnvironment)
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
		if !ok || !variableName.MatchString(key) {
			return nil, fmt.Errorf("cannot read %s line %d: write NAME=VALUE", name, n+1)
		}
		all[key] = value
	}
	return all, nil
}

// useEnvironment sets the variables of the service in this process.
func useEnvironment(file string) error {
	all, err := environment(file)
	for name, value := range all {
		err = errors.Join(err, os.Setenv(name, value))
	}
	return err
}

// Lacking returns the variables of this shell that a configuration file uses, and that its service
// would not have.
func Lacking(file string) []string {
	has, err := environment(file)
	if err != nil {
		return nil
	}
	text, err := clients.ReadFile(file)
	if err != nil {
		return nil
	}
	used := map[string]bool{}
	use := func(name string) {
		_, there := has[name]
		if value, _ := os.LookupEnv(name); value != "" && !there && !slices.Contains(kept, name) {
			used[name] = true
		}
	}
	c, _ := config.Parse(file, text, func(name string) (string, bool) { // mistakes are shown elsewhere
		if bytes.Contains(text, []byte("{"+name)) || bytes.Contains(text, []byte("env:"+name)) {
			use(name)
		}
		return os.LookupEnv(name)
	})
	if c != nil {
		for _, u := range c.Upstreams {
			for _, name := range u.InheritEnv {
				if variableName.MatchString(name) {
					use(name)
				}
			}
		}
	}
	return slices.Sorted(maps.Keys(used))
}

// KeepVariables adds variables of this shell to the file with those of the service. Only the owner can
// read it. It returns the path of the file.
func KeepVariables(file string, names []string) (string, error) {
	name := EnvironmentOf(file)
	old, err := files.Read(name, maxEnvironment)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return name, fmt.Errorf("cannot read %s: %w", name, files.Reason(err))
	}
	text := old
	if old == nil {
		text = []byte("# The variables of the service of Junction: NAME=VALUE.\n")
	} else if !bytes.HasSuffix(old, []byte("\n")) {
		text = append(bytes.Clone(old), '\n')
	}
	for _, variable := range names {
		value := os.Getenv(variable)
		if strings.ContainsAny(value, "\r\n\x00") {
			return name, fmt.Errorf("cannot keep %s: its value has several lines; keep it in a file, and write "+
				"${file:PATH} into the configuration", variable)
		}
		text = fmt.Appendf(text, "%s=%s\n", variable, value)
	}
	if err := files.Write(name, text); err != nil {
		return name, fmt.Errorf("cannot write %s: %w", name, files.Reason(err))
	}
	return name, nil
}

// maxLog is how many bytes the file of a log has before it becomes the old one.
const maxLog = 10 << 20

// logFile is a log in a file of bounded size. The lines before are in a second file.
type logFile struct {
	name string

	mu   sync.Mutex
	file *os.File // guarded by mu
	size int64    // guarded by mu
}

func openLog(name string) (*logFile, error) {
	if err := os.MkdirAll(filepath.Dir(name), 0o700); err != nil {
		return nil, fmt.Errorf("--log: %w", err)
	}
	l := &logFile{name: name}
	return l, l.open()
}

func (l *logFile) open() error {
	f, err := os.OpenFile(l.name, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("--log: %w", err)
	}
	l.file, l.size = f, 0
	if info, err := f.Stat(); err == nil {
		l.size = info.Size()
	}
	return nil
}

// Write implements io.Writer.
func (l *logFile) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.size+int64(len(p)) > maxLog && l.size > 0 {
		l.file.Close()
		if err := os.Rename(l.name, l.name+".old"); err != nil {
			os.Remove(l.name)
		}
		if err := l.open(); err != nil {
			return 0, err
		}
	}
	n, err := l.file.Write(p)
	l.size += int64(n)
	return n, err
}

func (l *logFile) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.file.Close()
}
