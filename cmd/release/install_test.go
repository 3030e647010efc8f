package main

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"
)

// installer is install.sh of a small release, a server of its files, and a home folder.
type installer struct {
	t       *testing.T
	home    string
	archive []byte                             // what the server sends
	answer  func(w http.ResponseWriter) bool   // handles a request in place of the archive if it returns true
	asked   []string                           // the requested URLs
	environ []string                           // more variables
	tools   string                             // folder of programs, in place of those of this machine
	change  func(script []byte) (other []byte) // of the script
}

func newInstaller(t *testing.T) *installer {
	if runtime.GOOS != "linux" {
		t.Skip("the archive of this test is for Linux")
	}
	return &installer{t: t, home: t.TempDir()}
}

// run runs the script, and returns its output and whether it succeeded.
func (i *installer) run(args ...string) (string, bool) {
	i.t.Helper()
	name := "junction_1.0.0_linux_" + runtime.GOARCH
	var files []packed
	for _, program := range programs {
		file := filepath.Join(i.t.TempDir(), program)
		mustWrite(i.t, file, "#!/bin/sh\necho "+program+" 1.0.0\n", 0o755)
		files = append(files, packed{file, program, 0o755})
	}
	whole, err := tarball(name, files, time.Unix(0, 0))
	if err != nil {
		i.t.Fatal(err)
	}
	if i.archive == nil {
		i.archive = whole
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		i.asked = append(i.asked, r.RequestURI)
		if i.answer == nil || !i.answer(w) {
			_, _ = w.Write(i.archive)
		}
	}))
	defer server.Close()
	base := server.URL + "/v1.0.0"
	environ := i.environ
	for n, variable := range environ {
		if strings.HasPrefix(variable, "http_proxy=") { // the server is the proxy of a host that does not exist
			environ[n], base = "http_proxy="+server.URL, "http://download.example/v1.0.0"
		}
	}
	sum := sha256.Sum256(whole)
	script, err := installScript("1.0.0", base, []platform{
		{"linux", runtime.GOARCH, name + ".tar.gz", hex.EncodeToString(sum[:]), len(whole)},
		{"windows", "amd64", "w.zip", "03", 1},
	})
	if err != nil {
		i.t.Fatal(err)
	}
	if i.change != nil {
		script = i.change(script)
	}
	cmd := exec.CommandContext(i.t.Context(), "/bin/sh", append([]string{"-s", "--"}, args...)...)
	cmd.Stdin = bytes.NewReader(script)
	path := os.Getenv("PATH")
	if i.tools != "" {
		path = i.tools
	}
	cmd.Env = append([]string{"HOME=" + i.home, "PATH=" + path}, environ...)
	out, err := cmd.CombinedOutput()
	return string(out), err == nil
}

// mustHave checks the files below the home folder.
func (i *installer) mustHave(want ...string) {
	i.t.Helper()
	var got []string
	err := filepath.WalkDir(i.home, func(name string, entry os.DirEntry, err error) error {
		if err == nil && !entry.IsDir() {
			rest, _ := filepath.Rel(i.home, name)
			got = append(got, rest)
		}
		return err
	})
	if err != nil || strings.Join(got, " ") != strings.Join(want, " ") {
		i.t.Errorf("the home folder has %q (%v), want %q", got, err, want)
	}
}

func mustWrite(t *testing.T, file, text string, mode os.FileMode) {
	t.Helper()
	if err := os.WriteFile(file, []byte(text), mode); err != nil {
		t.Fatal(err)
	}
}

// only makes a folder with links to the named programs, which must exist.
func only(t *testing.T, names ...string) string {
	t.Helper()
	dir := t.TempDir()
	for _, name := range names {
		file, err := exec.LookPath(name)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(file, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

var installed = []string{".local/bin/junction", ".local/bin/junction-pack"}

// base are the programs that the script needs besides one that downloads.
var base = []string{"uname", "mkdir", "mktemp", "rm", "head", "sha256sum", "cut", "wc", "tr", "tar", "gzip", "mv"}

// TestInstallForThisUser: the script installs both programs, replaces old ones, and says what comes next.
func TestInstallForThisUser(t *testing.T) {
	i := newInstaller(t)
	for range 2 {
		out, ok := i.run()
		if !ok || !strings.Contains(out, "Junction 1.0.0 is in "+i.home+"/.local/bin.") || !strings.Contains(out, "not in your PATH") {
			t.Errorf("the script prints %s (%v)", out, ok)
		}
		i.mustHave(installed...)
	}
	if out, ok := i.run(filepath.Join(i.home, "other folder")); !ok {
		t.Errorf("into a named folder: %s", out)
	}
	i.mustHave(append(installed, "other folder/junction", "other folder/junction-pack")...)
}

// TestInstallWithEitherDownloader: curl or wget is enough, and both use a proxy.
func TestInstallWithEitherDownloader(t *testing.T) {
	for _, name := range []string{"curl", "wget"} {
		if _, err := exec.LookPath(name); err != nil {
			t.Logf("NOT TESTED: there is no %s", name)
			continue
		}
		i := newInstaller(t)
		i.tools = only(t, append(base, name)...)
		if out, ok := i.run(); !ok {
			t.Errorf("with %s: %s", name, out)
		}
		i.mustHave(installed...)
		i.environ = []string{"http_proxy="}
		if out, ok := i.run(); !ok || !strings.HasPrefix(i.asked[len(i.asked)-1], "http://download.example/v1.0.0/junction_") {
			t.Errorf("with %s and a proxy: %s, requests: %q", name, out, i.asked)
		}
	}
}

// TestInstallNothingByHalves: after each failure the folder has what it had before, and the reason is
// printed.
func TestInstallNothingByHalves(t *testing.T) {
	uname := func(i *installer) {
		i.tools = only(i.t, append(base[1:], "curl")...)
		mustWrite(i.t, filepath.Join(i.tools, "uname"), "#!/bin/sh\necho Plan9\n", 0o755)
	}
	for name, test := range map[string]struct {
		set  func(i *installer)
		want string // in the output
	}{
		"damaged":       {func(i *installer) { i.archive = []byte("other bytes") }, "damaged"},
		"endless":       {func(i *installer) { i.archive = make([]byte, 1<<22) }, "damaged"},
		"missing":       {func(i *installer) { i.answer = status(404) }, "404"},
		"cut off":       {func(i *installer) { i.answer = cutOff }, "damaged"},
		"other system":  {uname, "there is no program for Plan9"},
		"no downloader": {func(i *installer) { i.tools = only(i.t, base...) }, "neither curl nor wget"},
		"no checksums": {func(i *installer) {
			i.tools = only(i.t, "curl", "uname", "mkdir", "mktemp", "rm", "head", "cut", "wc", "tr", "tar", "gzip", "mv")
		}, "cannot check the download"},
		"no gzip": {func(i *installer) {
			i.tools = only(i.t, "curl", "uname", "mkdir", "mktemp", "rm", "head", "cut", "wc", "tr", "tar", "sha256sum", "mv")
		}, "cannot unpack"},
	} {
		t.Run(name, func(t *testing.T) {
			i := newInstaller(t)
			dir := filepath.Join(i.home, ".local", "bin")
			if err := os.MkdirAll(dir, 0o755); err != nil {
				t.Fatal(err)
			}
			mustWrite(t, filepath.Join(dir, "junction"), "old", 0o755)
			test.set(i)
			if out, ok := i.run(); ok || !strings.Contains(out, test.want) {
				t.Errorf("the script prints %s (%v), want a failure with %q", out, ok, test.want)
			}
			i.mustHave(".local/bin/junction")
			if text, err := os.ReadFile(filepath.Join(dir, "junction")); err != nil || string(text) != "old" {
				t.Errorf("the old program is %q (%v)", text, err)
			}
		})
	}
}

func status(code int) func(w http.ResponseWriter) bool {
	return func(w http.ResponseWriter) bool {
		w.WriteHeader(code)
		return true
	}
}

// cutOff sends a part of an archive, and closes the connection.
func cutOff(w http.ResponseWriter) bool {
	w.Header().Set("Content-Length", "400")
	_, _ = w.Write(make([]byte, 100))
	return true
}

// TestInstallOfACutScript: a script that was cut off anywhere before its last line changes nothing.
func TestInstallOfACutScript(t *testing.T) {
	i := newInstaller(t)
	for _, part := range []int{30, 60, 90, 99} {
		i.change = func(script []byte) []byte { return script[:len(script)*part/100] }
		i.run()
		i.mustHave()
	}
	i.change = func(script []byte) []byte { return bytes.TrimSuffix(script, []byte("main \"$@\"\n")) }
	i.run()
	i.mustHave()
	if len(i.asked) > 0 {
		t.Errorf("the script has asked for %q", i.asked)
	}
}

// TestInstallScriptHasOnlyWords: a version or an address that a shell could read as a command is refused.
func TestInstallScriptHasOnlyWords(t *testing.T) {
	for _, values := range [][2]string{
		{"1.0.0;id", "https://example.com"}, {"1.0.0", "https://example.com/$(id)"}, {"1.0.0", "https://example.com/\"`id`"},
		{"1.0.0", "file:///x"}, {"", "https://example.com"},
	} {
		if _, err := installScript(values[0], values[1], nil); err == nil {
			t.Errorf("version %q and address %q are accepted", values[0], values[1])
		}
	}
}
