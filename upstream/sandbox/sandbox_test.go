package sandbox

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestSandboxNamesWhatAKernelLacks: each promise that a version of Landlock cannot keep is named, with
// what to do about it, and no other.
func TestSandboxNamesWhatAKernelLacks(t *testing.T) {
	filtered := func(abi int) Support { return Support{ABI: abi, Why: "none here", Filter: true} }
	unfiltered := Support{ABI: 9, FilterWhy: "no filter here"}
	everything := Rules{AnyTCP: true, AnyUnix: true}
	for _, row := range []struct {
		kernel   Support
		rules    Rules
		enforces bool
		want     []string // parts of the text; none is no text
	}{
		{filtered(0), everything, false, []string{"none here"}},
		{filtered(1), everything, false, []string{"ABI 1", "move files", "Linux 6.7"}},
		{filtered(2), Rules{AnyTCP: true}, true, []string{"ABI 2", "not restrict truncating files; use Linux 6.2"}},
		{filtered(2), Rules{}, true, []string{"ABI 2", "truncating files and TCP", "Linux 6.7"}},
		{filtered(3), Rules{AnyTCP: true}, true, nil},
		{filtered(3), Rules{}, true, []string{"ABI 3", "TCP", "Linux 6.7", "tcp: all"}},
		{filtered(3), Rules{AnyUnix: true}, true, []string{"ABI 3", "TCP and UNIX sockets; use Linux 7.1"}},
		{filtered(4), Rules{}, true, nil}, // which has no UNIX sockets
		{filtered(8), everything, true, []string{"ABI 8", "UNIX sockets", "require: true", "Linux 7.1"}},
		{filtered(9), everything, true, nil},
		{filtered(9), Rules{}, true, nil},
		{filtered(99), Rules{}, true, nil},
		{unfiltered, everything, true, []string{"TCP Fast Open", "other than TCP", "io_uring", "no filter here"}},
		{Support{ABI: 3, FilterWhy: "no filter here"}, Rules{}, true,
			[]string{"ABI 3", "tcp: all; TCP Fast Open", "no filter here"}},
	} {
		got := row.kernel.Missing(&row.rules)
		if row.kernel.Enforces() != row.enforces || (got == "") != (len(row.want) == 0) {
			t.Errorf("%+v, %+v: enforces %v, lacks %q", row.kernel, row.rules, row.kernel.Enforces(), got)
		}
		for _, part := range row.want {
			if !strings.Contains(got, part) {
				t.Errorf("%+v, %+v: %q does not name %s", row.kernel, row.rules, got, part)
			}
		}
	}
}

// TestSandboxProgramsWithoutTheHome: a command may read the installation that it comes from, and
// never the home folder, whatever PATH and the variables of version managers name.
func TestSandboxProgramsWithoutTheHome(t *testing.T) {
	home := filepath.Join(t.TempDir(), "ann")
	file := func(path, text string) {
		t.Helper()
		path = filepath.Join(home, path)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	link := func(path, to string) {
		t.Helper()
		path = filepath.Join(home, path)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(to, path); err != nil {
			t.Fatal(err)
		}
	}
	file("node/lib/node_modules/npm/npx.js", "#!/usr/bin/env node\n")
	link("node/bin/npx", "../lib/node_modules/npm/npx.js")
	file("project/.venv/pyvenv.cfg", "")
	file("project/.venv/bin/python", "")
	file("project/.venv/bin/server", "#!"+home+"/project/.venv/bin/python\n")
	file("project/.env", "secret")
	link(".local/bin/server", "../../project/.venv/bin/server")
	file(".local/share/keyrings/login", "secret")
	file(".nvm/nvm.sh", "")
	file("ca.pem", "")
	link("circle/bin/server", "other")
	link("circle/bin/other", "server")
	link("alias", home)
	at := func(list ...string) (paths []string) {
		for _, p := range list {
			paths = append(paths, filepath.Join(home, p))
		}
		return paths
	}
	wide := strings.Join(append(at("", "alias"), filepath.Dir(home), "/", ".", ""), ":")
	env, keys := "project/.env", ".local/share/keyrings/login"
	for name, row := range map[string]struct {
		program  string
		path     string // PATH
		more     []string
		want     []string
		unwanted []string // must not be covered
	}{
		"npx of an installation of Node": {"node/bin/npx", "", nil, at("node/bin", "node/lib", ".nvm"), at(env)},
		"a link into a virtual environment": {".local/bin/server", "", nil,
			at("project/.venv/bin", "project/.venv/pyvenv.cfg", ".local/bin/server"), at(env, keys)},
		"an installation of PATH":             {"ca.pem", at("node/bin")[0], nil, at("node/bin", "node/lib"), nil},
		"PATH with programs alone":            {"ca.pem", at(".local/bin")[0], nil, at(".local/bin"), at(keys)},
		"PATH with the home, and what has it": {"ca.pem", wide, nil, at("ca.pem"), at(env)},
		"a manager in the home": {"ca.pem", "", []string{"PYENV_ROOT=" + home, "VOLTA_HOME=/", "BUN_INSTALL=."},
			at("ca.pem"), at(env)},
		"certificates":      {"node/bin/npx", "", []string{"SSL_CERT_FILE=" + home + "/ca.pem"}, at("ca.pem"), at(env)},
		"links in a circle": {"circle/bin/server", "", nil, at(".nvm"), at(env)},
	} {
		t.Run(name, func(t *testing.T) {
			got := Programs(filepath.Join(home, row.program), append([]string{"HOME=" + home, "PATH=" + row.path}, row.more...), nil)
			for _, p := range row.want {
				if !Covers(got, p) {
					t.Errorf("it may not read %s, but %q", p, got)
				}
			}
			for _, p := range append(row.unwanted, home, filepath.Dir(home)) {
				if Covers(got, p) {
					t.Errorf("it may read %s: %q", p, got)
				}
			}
		})
	}
	for _, dir := range append(at("", "alias"), home+"/", filepath.Dir(home), home+"/project/..", "/") {
		if !TooWide(dir, []string{"HOME=" + home}) {
			t.Errorf("%s is not too wide", dir)
		}
	}
	if TooWide(filepath.Join(home, "project"), []string{"HOME=" + home}) {
		t.Error("a folder in the home is too wide")
	}
}

// TestSandboxSystemHasNoSecrets: what every command may read is none of what the kernel or other
// programs keep secrets in.
func TestSandboxSystemHasNoSecrets(t *testing.T) {
	all := slices.Concat(System(), Devices())
	for _, secret := range []string{
		"/etc", "/etc/shadow", "/etc/junction/config.yaml", "/etc/ssl/private/key.pem", "/etc/ssh",
		"/proc", "/proc/1/cmdline", "/root", "/home", "/var", "/run", "/run/secrets/token", "/run/user/1000",
		"/tmp", "/dev", "/dev/shm", "/dev/sda", "/dev/mem", "/sys", "/opt", "/srv", "/mnt",
	} {
		if Covers(all, secret) {
			t.Errorf("every command may read %s", secret)
		}
	}
	for _, needed := range []string{
		"/usr/bin/node", "/etc/ssl/certs/ca-certificates.crt", "/etc/resolv.conf", "/dev/null",
	} {
		if !Covers(all, needed) {
			t.Errorf("no command may read %s", needed)
		}
	}
}
