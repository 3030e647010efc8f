package sandbox

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"junction/upstream/files"
)

// System returns the files that every sandboxed command may read, if they exist: installed programs
// and libraries, name resolution, certificates, time zones, users' names. /proc is not included,
// because it shows the arguments of all commands.
func System() []string {
	list := []string{
		"/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/nix/store", "/gnu/store",
		"/etc/ld.so.cache", "/etc/ld.so.conf", "/etc/ld.so.conf.d", "/etc/ld.so.preload",
		"/etc/alternatives",
		"/etc/resolv.conf", "/run/systemd/resolve", "/run/resolvconf", "/run/NetworkManager/resolv.conf",
		"/etc/hosts", "/etc/host.conf", "/etc/nsswitch.conf", "/etc/gai.conf", "/etc/services", "/etc/protocols",
		"/etc/ssl/certs", "/etc/ssl/cert.pem", "/etc/ssl/ca-bundle.pem", "/etc/ssl/openssl.cnf",
		"/etc/pki/tls/certs", "/etc/pki/tls/cert.pem",
		"/etc/pki/tls/openssl.cnf", "/etc/pki/ca-trust", "/etc/ca-certificates", "/etc/crypto-policies",
		"/etc/passwd", "/etc/group", "/etc/localtime", "/etc/timezone", "/etc/locale.conf",
		"/etc/os-release", "/etc/lsb-release", "/etc/debian_version",
		"/etc/mime.types", "/etc/terminfo", "/etc/fonts",
		"/sys/devices/system/cpu",
		"/dev/random", "/dev/urandom",
	}
	for _, versions := range []string{"/etc/python3*", "/etc/ld-musl-*"} {
		found, _ := filepath.Glob(versions) // the only error is a bad pattern
		list = append(list, found...)
	}
	return list
}

// Devices returns the device files that every sandboxed command may read and write.
func Devices() []string { return []string{"/dev/null", "/dev/zero", "/dev/full"} }

// certificates lists variables with the paths of certificates.
var certificates = []string{
	"SSL_CERT_FILE", "SSL_CERT_DIR", "NODE_EXTRA_CA_CERTS", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "PIP_CERT",
	"npm_config_cafile", "NPM_CONFIG_CAFILE",
}

// managers lists the folders of version managers and of the programs that they have installed: the
// variable for each folder, and its default in the home folder.
var managers = []struct{ variable, home, below string }{
	{"NVM_DIR", ".nvm", ""},
	{"FNM_DIR", ".local/share/fnm", ""},
	{"VOLTA_HOME", ".volta", ""},
	{"ASDF_DATA_DIR", ".asdf", ""},
	{"MISE_DATA_DIR", ".local/share/mise", ""},
	{"PYENV_ROOT", ".pyenv", ""},
	{"BUN_INSTALL", ".bun", "bin"},
	{"UV_PYTHON_INSTALL_DIR", ".local/share/uv/python", ""},
	{"", ".local/share/uv/tools", ""},
	{"", ".local/share/pipx/venvs", ""},
}

// Programs returns the files and folders that a command needs to run: the program and the
// interpreter in its first line, the folders of PATH with their Node and Python installations,
// version managers, and the certificates in the environment. program is an absolute path. A folder
// that contains the home folder is never included, and nothing below a writable path.
func Programs(program string, environment []string, writable Writable) []string {
	p := places{environment: environment, home: variable(environment, "HOME"), writable: writable}
	p.program(program)
	for _, dir := range filepath.SplitList(variable(environment, "PATH")) {
		p.add(dir)
		p.installation(dir)
	}
	for _, m := range managers {
		dir := variable(environment, m.variable)
		if dir == "" && p.home != "" {
			dir = filepath.Join(p.home, m.home)
		}
		p.add(filepath.Join(dir, m.below))
	}
	for _, name := range certificates {
		for _, file := range filepath.SplitList(variable(environment, name)) {
			p.add(file)
		}
	}
	return p.list
}

// variable returns the value of a variable in the environment. The last entry wins, as in a
// process.
func variable(environment []string, name string) string {
	for _, v := range slices.Backward(environment) {
		if value, ok := strings.CutPrefix(v, name+"="); ok && name != "" {
			return value
		}
	}
	return ""
}

// TooWide reports whether a folder is too large to be readable by default: the root, a home folder,
// or a folder that contains one. environment is the command's, whose HOME may differ.
func TooWide(dir string, environment []string) bool {
	dirs := resolved(dir)
	if slices.Contains(dirs, "/") {
		return true
	}
	own, _ := os.UserHomeDir() // without one there is only the command's
	for _, home := range []string{own, variable(environment, "HOME")} {
		if home != "" && slices.ContainsFunc(resolved(home), func(h string) bool { return Covers(dirs, h) }) {
			return true
		}
	}
	return false
}

// resolved returns a path and the target of its symbolic links.
func resolved(path string) []string {
	list := []string{filepath.Clean(path)}
	if real, err := filepath.EvalSymlinks(path); err == nil {
		list = append(list, real)
	}
	return list
}

// places collects paths.
type places struct {
	environment []string
	home        string
	writable    Writable
	list        []string
}

// add adds a path if it exists, is not too wide, and is not below a writable path.
func (p *places) add(path string) {
	if !filepath.IsAbs(path) || p.writable.Holds(path) != "" || TooWide(path, p.environment) ||
		slices.Contains(p.list, path) {
		return
	}
	if _, err := os.Stat(path); err == nil {
		p.list = append(p.list, path)
	}
}

// program adds a program, the targets of its links, and the interpreter of a script.
func (p *places) program(path string) {
	for range 3 { // an interpreter may be a script itself
		p.add(path)
		link := path
		for range 8 { // links may lead in a circle
			if p.writable.Holds(filepath.Dir(link)) != "" {
				break
			}
			p.installation(filepath.Dir(link))
			if link = follow(link); link == "" {
				break
			}
		}
		if p.writable.Holds(path) != "" {
			return
		}
		if path = interpreter(path); !filepath.IsAbs(path) {
			return
		}
	}
}

// installation adds the files of a Node or Python installation; bin is its folder for programs.
func (p *places) installation(bin string) {
	root := filepath.Dir(bin)
	if filepath.Base(bin) != "bin" || !filepath.IsAbs(bin) || p.writable.Holds(root) != "" || !p.installed(root) {
		return
	}
	for _, part := range []string{"bin", "lib", "lib64", "libexec", "include", "ssl", "pyvenv.cfg"} {
		p.add(filepath.Join(root, part))
	}
}

// installed reports whether the folder has an installation of Node or Python, or a virtual
// environment.
func (p *places) installed(root string) bool {
	for _, mark := range []string{"lib/node_modules", "pyvenv.cfg", "conda-meta"} {
		mark = filepath.Join(root, mark)
		if _, err := os.Stat(mark); err == nil && p.writable.Holds(mark) == "" {
			return true
		}
	}
	if p.writable.Holds(filepath.Join(root, "lib")) != "" {
		return false
	}
	libraries, _ := os.ReadDir(filepath.Join(root, "lib")) // without it there is no Python
	return slices.ContainsFunc(libraries, func(e os.DirEntry) bool { return strings.HasPrefix(e.Name(), "python3") })
}

// follow returns the direct target of a symbolic link, or "" for other files.
func follow(path string) string {
	to, err := os.Readlink(path)
	if err != nil {
		return ""
	}
	if !filepath.IsAbs(to) {
		to = filepath.Join(filepath.Dir(path), to)
	}
	return to
}

// interpreter returns the program in the first line of a script, or "" for other files.
func interpreter(path string) string {
	if info, err := os.Stat(path); err != nil || !info.Mode().IsRegular() { // opening a pipe would block
		return ""
	}
	f, err := os.Open(path)
	if err != nil {
		return ""
	}
	defer f.Close()
	head := make([]byte, 256)
	n, _ := io.ReadFull(f, head) // a part is enough
	line, _, _ := bytes.Cut(head[:n], []byte("\n"))
	rest, script := bytes.CutPrefix(line, []byte("#!"))
	words := strings.Fields(string(rest))
	if !script || len(words) == 0 {
		return ""
	}
	return words[0]
}

// PathProblem returns why a path of the list called key cannot be used under the rules, with a
// solution; "" if it can.
func (s Support) PathProblem(r *Rules, key, path string) string {
	if problem := r.Writable.problem(key, path); problem != "" {
		return problem
	}
	info, err := os.Stat(path)
	switch {
	case err == nil && key == "write" && info.Mode().Type() == fs.ModeSocket && s.Enforces() && !s.permitsUnix(r):
		return fmt.Sprintf("%s is a UNIX socket, and with Landlock of this kernel (ABI %d) require: true permits "+
			"none; use Linux 7.1 or newer, or remove require", path, s.ABI)
	case err == nil:
		return ""
	case !errors.Is(err, fs.ErrNotExist):
		return fmt.Sprintf("%s cannot be used: %v; make it accessible to the user of Junction, or remove the entry",
			path, files.Reason(err))
	case key == "write":
		return fmt.Sprintf("%s does not exist; create it (a folder: mkdir -p %s), or remove the entry", path, path)
	}
	return path + " does not exist; create it, or remove the entry"
}
