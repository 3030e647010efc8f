// Package needs has what the tests need of the machine beside Go. A test without it is skipped, and
// the command integration/needs says what is missing. With JUNCTION_TEST_ALL=1 such a test fails.
package needs

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
)

// Need is something that some tests need.
type Need struct {
	Name    string
	Package string       // of Debian, which has it; empty if there is none
	For     string       // what is tested with it
	Find    func() error // nil if it is there
}

// variable makes a test fail that would be skipped.
const variable = "JUNCTION_TEST_ALL"

// Node runs foreign clients and servers.
var Node = Need{"Node 20 or newer with npm", "nodejs npm", "clients and servers of others, pages",
	sync.OnceValue(findNode)}

// UV runs servers from PyPI.
var UV = Need{"uvx", "", "servers from PyPI (install: pip install uv)", program("uvx")}

// Chromium is the browser. Browser returns where it is.
var Chromium = Need{"Chromium", "chromium-headless-shell", "pages and sign-in in a browser", func() error {
	_, err := Browser()
	return err
}}

// Postgres is the database of several processes. The tests start one of their own.
var Postgres = Need{"Postgres", "postgresql", "the database of several processes", func() error {
	_, err := PostgresFolder()
	return err
}}

// Nginx, HAProxy and Caddy are reverse proxies.
var (
	Nginx   = Need{"nginx", "nginx-light", "several processes, the recipes", program("nginx")}
	HAProxy = Need{"HAProxy", "haproxy", "the recipes of reverse proxies", program("haproxy")}
	Caddy   = Need{"Caddy", "caddy", "the recipes of reverse proxies", program("caddy")}
)

// Logrotate, Systemd and Promtool check recipes of the operator.
var (
	Logrotate = Need{"logrotate", "logrotate", "the recipe of the log", program("logrotate")}
	Systemd   = Need{"systemd-analyze", "systemd", "the service file", program("systemd-analyze")}
	Promtool  = Need{"promtool", "prometheus", "metrics, dashboard and alerts", program("promtool")}
	Server    = Need{"prometheus", "prometheus", "metrics, dashboard and alerts", program("prometheus")}
)

// Git, Bash and Busybox are programs that packs, words of a shell and images use.
var (
	Git     = Need{"git", "git", "packs from git", program("git")}
	Bash    = Need{"bash", "bash", "words for a shell", program("bash")}
	Busybox = Need{"busybox", "busybox", "the watchdog with its shell", program("busybox")}
	SQLite  = Need{"sqlite3", "sqlite3", "a recipe of packs", program("sqlite3")}
)

// Mounts is that this user may mount a small disk.
var Mounts = Need{"mounts in a user namespace", "", "full and read-only disks", sync.OnceValue(func() error {
	return exec.Command("unshare", "-rm", "mount", "-t", "tmpfs", "tmpfs", os.TempDir()).Run()
})}

// All returns all needs.
func All() []Need {
	return []Need{Node, UV, Chromium, Postgres, Nginx, HAProxy, Caddy, Logrotate, Systemd, Promtool, Server, Git, Bash,
		Busybox, SQLite, Mounts}
}

// Require skips the test if the machine lacks it.
func (n Need) Require(t testing.TB) {
	t.Helper()
	if err := n.Find(); err != nil {
		Skip(t, fmt.Errorf("%s is missing: %w", n.Name, err))
	}
}

// Strict reports whether a test fails that lacks something.
func Strict() bool { return os.Getenv(variable) == "1" }

// Skip skips the test for something that the machine lacks, or fails it where all must be there. It
// does neither if err is nil.
func Skip(t testing.TB, err error) {
	t.Helper()
	switch {
	case err == nil:
	case Strict():
		t.Fatal(err)
	default:
		t.Skip(err)
	}
}

// Path returns where a program is, also one of the system's folder that is not in PATH.
func Path(name string) (string, error) {
	path, err := exec.LookPath(name)
	if err == nil {
		return path, nil
	}
	if path, other := exec.LookPath("/usr/sbin/" + name); other == nil {
		return path, nil
	}
	return "", err
}

// Browser returns where Chromium is. The one that is made without windows takes a third of the processor
// time of the other one, which draws them for nobody.
func Browser() (string, error) {
	if path, err := Path("chromium-headless-shell"); err == nil {
		return path, nil
	}
	return Path("chromium")
}

func program(name string) func() error {
	return func() error {
		_, err := Path(name)
		return err
	}
}

func findNode() error {
	out, err := exec.Command("node", "--version").Output()
	if err != nil {
		return fmt.Errorf("there is no Node: %w", err)
	}
	version := strings.TrimSpace(string(out))
	major, _, _ := strings.Cut(strings.TrimPrefix(version, "v"), ".")
	if n, err := strconv.Atoi(major); err != nil || n < 20 {
		return fmt.Errorf("this is Node %s, and the clients need 20 or later", version)
	}
	if _, err := exec.LookPath("npm"); err != nil {
		return fmt.Errorf("there is no npm: %w", err)
	}
	return nil
}

// PostgresFolder returns the folder with the programs of Postgres, of the newest version.
func PostgresFolder() (string, error) {
	if path, err := exec.LookPath("initdb"); err == nil {
		return filepath.Dir(path), nil
	}
	found, _ := filepath.Glob("/usr/lib/postgresql/*/bin/initdb") // the pattern is good
	if len(found) == 0 {
		return "", errors.New("there is no initdb")
	}
	version := func(path string) int {
		n, _ := strconv.Atoi(strings.Split(path, "/")[4]) // a number, or the oldest
		return n
	}
	return filepath.Dir(slices.MaxFunc(found, func(a, b string) int { return version(a) - version(b) })), nil
}
