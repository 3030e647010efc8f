package service

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"junction/cmd/junction/base/config"
	"junction/cmd/junction/base/revision"
	"junction/upstream/files"
	"junction/upstream/yamlread"
)

// session are the variables that a login gives to each process, also to those that a manager starts.
var session = []string{"HOME", "USER", "LOGNAME", "SHELL", "TMPDIR", "XDG_RUNTIME_DIR", "DBUS_SESSION_BUS_ADDRESS",
	"SystemRoot", "SystemDrive", "windir", "ComSpec", "PATHEXT", "OS", "COMPUTERNAME", "USERNAME", "USERDOMAIN",
	"USERPROFILE", "HOMEDRIVE", "HOMEPATH", "APPDATA", "LOCALAPPDATA", "ProgramData", "ALLUSERSPROFILE", "PUBLIC",
	"ProgramFiles", "ProgramFiles(x86)", "CommonProgramFiles", "TEMP", "TMP", "NUMBER_OF_PROCESSORS",
	"PROCESSOR_ARCHITECTURE"}

// environ returns the variables of a process in the background: those of a service, and no others of this
// shell. So a server that works in the process works in a service, too. What keep has kept is there again.
func (h *Host) environ(u *Unit) []string {
	all := h.settled(u)
	for _, name := range session {
		if value, ok := h.Getenv(name); ok {
			all = append(all, name+"="+value)
		}
	}
	return all
}

const pathVariable = "PATH"

// certificates are the variables with files of certificates that are kept, as PATH is: without them, the servers
// and Junction reach nothing behind a proxy with a CA of its own.
var certificates = []string{"SSL_CERT_FILE", "SSL_CERT_DIR", "NODE_EXTRA_CA_CERTS", "REQUESTS_CA_BUNDLE",
	"CURL_CA_BUNDLE", "PIP_CERT"}

// maxSettled is the most bytes of the variables that are kept.
const maxSettled = 32 << 10

// settled returns the variables of a unit, with what an earlier start had, so that a shell that lacks it, such as
// that of cron, starts the same servers: the folders of its PATH that this PATH lacks, and the certificates.
func (h *Host) settled(u *Unit) (all []string) {
	kept, has := map[string]string{}, map[string]string{}
	if file, err := h.keptFile(u.Name); err == nil {
		text, _ := files.Read(file, maxSettled) // without the file, nothing is kept
		for line := range strings.Lines(string(text)) {
			name, value, _ := strings.Cut(strings.TrimSpace(line), "=")
			kept[name] = value
		}
	}
	for _, v := range u.Env {
		name, value, _ := strings.Cut(v, "=")
		if has[name] = value; name != pathVariable {
			all = append(all, v)
		}
	}
	for _, name := range certificates {
		if _, own := has[name]; !own && kept[name] != "" && exists(kept[name]) {
			all = append(all, name+"="+kept[name])
		}
	}
	dirs := filepath.SplitList(has[pathVariable])
	for _, dir := range filepath.SplitList(kept[pathVariable]) {
		if filepath.IsAbs(dir) && !slices.Contains(dirs, dir) && exists(dir) {
			dirs = append(dirs, dir)
		}
	}
	if len(dirs) > 0 {
		all = append(all, pathVariable+"="+strings.Join(dirs, string(filepath.ListSeparator)))
	}
	return all
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// keep keeps PATH and the certificates of a process in the background for its next start.
func (h *Host) keep(u *Unit) error {
	file, err := h.keptFile(u.Name)
	if err != nil {
		return err
	}
	text := ""
	for _, v := range h.settled(u) {
		if name, _, _ := strings.Cut(v, "="); name == pathVariable || slices.Contains(certificates, name) {
			text += v + "\n"
		}
	}
	if len(text) > maxSettled {
		return nil
	}
	if err = os.MkdirAll(filepath.Dir(file), 0o700); err == nil {
		err = files.Write(file, []byte(text))
	}
	return err
}

// keptFile returns the file of keep.
func (h *Host) keptFile(name string) (string, error) { return h.stateDir("service", name+".kept") }

// checkInProcess has a process with the environment of a service check whether it could serve.
func (h *Host) checkInProcess(ctx context.Context, u *Unit) (left []LeftOut, err error) {
	ctx, cancel := context.WithTimeout(ctx, managerLimit)
	defer cancel()
	cmd := exec.CommandContext(ctx, u.Program, "service", "run", "--config", u.File, "--check")
	cmd.Dir, cmd.Env = h.Home, h.environ(u)
	var words bytes.Buffer
	cmd.Stderr = &words
	output, err := cmd.Output()
	if err == nil {
		err = json.Unmarshal(output, &left)
	}
	if err == nil {
		return left, nil
	}
	if _, ran := errors.AsType[*exec.ExitError](err); ran && len(bytes.TrimSpace(words.Bytes())) > 0 {
		return nil, errors.New(strings.TrimPrefix(lastLine(words.String()), "junction: "))
	}
	return nil, fmt.Errorf("cannot run %s: %w", u.Program, err)
}

// useEnvironment sets the variables of the service in this process, which may have none yet.
func useEnvironment(file string) error {
	_, err := config.UseEnvironment(file)
	return errors.Join(err, os.Setenv(config.ServiceVariables, config.EnvironmentOf(file)))
}

// Lacking returns the variables of this shell that a configuration file uses, and that its service
// would not have.
func Lacking(file string) []string {
	has, err := config.Environment(file)
	if err != nil {
		return nil
	}
	text, err := revision.Read(file)
	if err != nil {
		return nil
	}
	used := map[string]bool{}
	use := func(name string) {
		_, there := has[name]
		if value, _ := os.LookupEnv(name); value != "" && !there && !kept(name, value) {
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
			for _, name := range slices.Concat(u.InheritEnv, u.Exec.InheritEnv) {
				if yamlread.IsVariable(name) {
					use(name)
				}
			}
		}
	}
	return slices.Sorted(maps.Keys(used))
}

// remember reads the file with the variables of a service. restore gives it its content again, or removes it
// if it did not exist.
func remember(name string) (restore func() error, err error) {
	old, err := files.Read(name, config.MaxEnvironment)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("cannot read %s: %w", name, files.Reason(err))
	}
	missing := err != nil
	return func() error {
		err := error(nil)
		if missing {
			err = os.Remove(name)
		} else {
			err = files.Write(name, old)
		}
		if err == nil || errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		return fmt.Errorf("%s keeps variables of this shell: %w; remove them by hand", name, files.Reason(err))
	}, nil
}

// heading is the first line of a file that KeepVariables has created.
const heading = "# The variables of the service of Junction: NAME=VALUE.\n"

// Line is the line of a variable of this shell in the file with those of the service.
func Line(variable string) string { return variable + "=" + os.Getenv(variable) }

// WithoutLines returns the text of the file with the variables without some lines, and the variables that these
// set. The text is nil if nothing is left but what KeepVariables has written.
func WithoutLines(text []byte, drop func(line string) bool) (rest []byte, names []string) {
	for line := range strings.Lines(string(text)) {
		if bare := strings.TrimSpace(line); drop(bare) {
			name, _, _ := strings.Cut(bare, "=")
			names = append(names, name)
		} else {
			rest = append(rest, line...)
		}
	}
	if string(rest) == heading {
		return nil, names
	}
	return rest, names
}

// KeepVariables adds variables of this shell to the file with those of the service. Only the owner can
// read it. It returns the path of the file.
func KeepVariables(file string, names []string) (string, error) {
	name := config.EnvironmentOf(file)
	old, err := files.Read(name, config.MaxEnvironment)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return name, fmt.Errorf("cannot read %s: %w", name, files.Reason(err))
	}
	text := old
	if old == nil {
		text = []byte(heading)
	} else if !bytes.HasSuffix(old, []byte("\n")) {
		text = append(bytes.Clone(old), '\n')
	}
	for _, variable := range names {
		line := Line(variable)
		if strings.ContainsAny(line, "\r\n\x00") {
			return name, fmt.Errorf("cannot keep %s: its value has several lines; keep it in a file, and write "+
				"${file:PATH} into the configuration", variable)
		}
		text = append(text, line+"\n"...)
	}
	if err := noteKept(file, names); err != nil {
		return name, fmt.Errorf("cannot note what is kept: %w", files.Reason(err))
	}
	if err := files.Write(name, text); err != nil {
		return name, fmt.Errorf("cannot write %s: %w", name, files.Reason(err))
	}
	return name, nil
}

const (
	mostKept = 1000              // lines of KeepVariables that are noted
	maxKept  = mostKept * 2 * 65 // bytes of the note
)

// keptFile returns the file with the SHA-256 of each line that KeepVariables has written, so that an undo tells
// these from the lines of a person.
func keptFile(file string) (string, error) {
	dir, err := config.StateDir(os.LookupEnv)
	return filepath.Join(dir, "junction", "service", config.FolderOf(file)+".kept"), err
}

// noteKept notes the lines of variables before they are written.
func noteKept(file string, names []string) error {
	note, err := keptFile(file)
	if err != nil {
		return err
	}
	sums := linesOf(note)
	for _, name := range names {
		sums = append(sums, lineSum(Line(name)))
	}
	sums = sums[max(0, len(sums)-mostKept):]
	if err := os.MkdirAll(filepath.Dir(note), 0o700); err != nil {
		return err
	}
	return files.Write(note, []byte(strings.Join(sums, "\n")+"\n"))
}

func lineSum(line string) string {
	hash := sha256.Sum256([]byte(line))
	return hex.EncodeToString(hash[:])
}

// linesOf returns the lines of a note; none if it cannot be read.
func linesOf(note string) []string {
	text, err := files.Read(note, maxKept)
	if err != nil {
		return nil
	}
	return strings.Fields(string(text))
}

// WroteLine returns whether a line of the file with the variables of a service is as KeepVariables has written it.
func WroteLine(file string) func(line string) bool {
	note, err := keptFile(file)
	if err != nil {
		return func(string) bool { return false }
	}
	sums := linesOf(note)
	return func(line string) bool { return slices.Contains(sums, lineSum(line)) }
}

// ForgetLines forgets the lines of KeepVariables.
func ForgetLines(file string) {
	if note, err := keptFile(file); err == nil {
		os.Remove(note)
	}
}
