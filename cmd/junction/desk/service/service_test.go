package service

import (
	"bytes"
	"context"
	"encoding/xml"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unicode/utf16"

	"junction/cmd/junction/base/config"
	"junction/integration/harness/needs"
)

// fakeHost is a host of a system whose manager notes its commands. fails is the beginning of the
// command that fails.
func fakeHost(t *testing.T, system, fails string) (h *Host, ran *[]string) {
	t.Helper()
	home := t.TempDir()
	t.Setenv("HOME", home)
	t.Setenv("XDG_STATE_HOME", "")
	t.Setenv("XDG_CONFIG_HOME", "")
	ran = &[]string{}
	run := func(_ context.Context, name string, args ...string) (string, error) {
		line := strings.Join(append([]string{name}, args...), " ")
		*ran = append(*ran, line)
		if fails != "" && strings.HasPrefix(line, fails) {
			return "first line\nno manager\n", errors.New("exit status 1")
		}
		return "", nil
	}
	return &Host{OS: system, Home: home, User: 501, Getenv: os.LookupEnv, Environ: os.Environ, Run: run}, ran
}

// hostile is a path with everything that a definition could read as something else.
const hostile = `a "b" %h $HOME ${X} \n 'c' <d>&e;#.yaml`

// mustVerify has systemd read a unit.
func mustVerify(t *testing.T, file string) {
	t.Helper()
	needs.Systemd.Require(t)
	cmd := exec.CommandContext(t.Context(), "systemd-analyze", "--user", "verify", file)
	cmd.Env = append(os.Environ(), "XDG_RUNTIME_DIR="+t.TempDir())
	if output, err := cmd.CombinedOutput(); err != nil || len(output) > 0 {
		t.Errorf("systemd-analyze verify: %v\n%s", err, output)
	}
}

// TestUnitIsAccepted: systemd accepts the unit, also with a hostile path and variable.
func TestUnitIsAccepted(t *testing.T) {
	h, _ := fakeHost(t, "linux", "")
	for _, name := range []string{"config.yaml", hostile} {
		u := &Unit{Name: "junction", Program: "/bin/sh", File: filepath.Join(h.Home, name), Home: h.Home,
			Env: []string{`PATH=/bin:/a b/"c"%d$E\`, "XDG_STATE_HOME=" + h.Home}}
		file, text := systemd{h}.definition(u)
		if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, text, 0o600); err != nil {
			t.Fatal(err)
		}
		mustVerify(t, file)
	}
	got := unitWord(hostile)
	if want := `"a \"b\" %%h $HOME ${X} \\n 'c' <d>&e;#.yaml"`; got != want {
		t.Errorf("the word is %s, want %s", got, want)
	}
}

// TestAgentIsXML: the agent has each word of the command as one string.
func TestAgentIsXML(t *testing.T) {
	h, _ := fakeHost(t, "darwin", "")
	u := &Unit{Name: "junction", Program: "/a b/junction", File: "/x/" + hostile, Home: h.Home, Log: "/log"}
	file, text := launchd{h}.definition(u)
	if want := filepath.Join(h.Home, "Library", "LaunchAgents", "local.junction.plist"); file != want {
		t.Errorf("the file is %s, want %s", file, want)
	}
	var words []string
	d := xml.NewDecoder(bytes.NewReader(text))
	for inArray := false; ; {
		token, err := d.Token()
		if err == io.EOF {
			break
		} else if err != nil {
			t.Fatalf("%v in\n%s", err, text)
		}
		switch e := token.(type) {
		case xml.StartElement:
			inArray = e.Name.Local == "array" || inArray && e.Name.Local == "string"
		case xml.CharData:
			if inArray && len(bytes.TrimSpace(e)) > 0 {
				words = append(words, string(e))
			}
		case xml.EndElement:
			inArray = inArray || e.Name.Local == "string" && len(words) < len(u.command())
		}
	}
	if !slices.Equal(words, u.command()) {
		t.Errorf("the words are %q, want %q", words, u.command())
	}
}

// TestWindowsReadsTheTask: the task is in the encoding that it names, and quotes as Windows reads it.
func TestWindowsReadsTheTask(t *testing.T) {
	h, _ := fakeHost(t, "windows", "")
	u := &Unit{Name: "junction", Program: `C:\Program Files\junction.exe`, File: `C:\a"b\\`, Home: `C:\Users\ann`, Log: `C:\log`}
	_, text := tasks{h}.definition(u)
	var units []uint16
	for i := 0; i+1 < len(text); i += 2 {
		units = append(units, uint16(text[i])|uint16(text[i+1])<<8)
	}
	plain := string(utf16.Decode(units))
	want := `<Arguments>--headless &#34;C:\Program Files\junction.exe&#34; service run --config ` +
		`&#34;C:\a\&#34;b\\\\&#34; --log C:\log</Arguments>`
	if !strings.HasPrefix(plain, "\ufeff<?xml") || !strings.Contains(plain, want) {
		t.Errorf("the task is\n%s\nwant %s", plain, want)
	}
}

// TestManagersAreCalled: each manager gets its commands, and a failed start leaves no definition.
func TestManagersAreCalled(t *testing.T) {
	for _, test := range []struct {
		system, fails string
		want          []string
	}{
		{"linux", "systemctl --user restart", []string{"systemctl --user daemon-reload",
			"systemctl --user enable junction.service", "systemctl --user restart junction.service",
			"systemctl --user disable --now junction.service", "systemctl --user daemon-reload",
			"systemctl --user reset-failed junction.service", "systemctl --user show --property=Version"}},
		{"darwin", "launchctl bootstrap", []string{"launchctl bootout gui/501/local.junction",
			"launchctl bootstrap gui/501 HOME/Library/LaunchAgents/local.junction.plist",
			"launchctl bootout gui/501/local.junction", "launchctl print gui/501"}},
		{"windows", "schtasks /Run", []string{"schtasks /End /TN junction",
			"schtasks /Create /TN junction /XML HOME/.local/state/junction/service/junction.xml /F",
			"schtasks /Run /TN junction", "schtasks /End /TN junction", "schtasks /Delete /TN junction /F"}},
	} {
		t.Run(test.system, func(t *testing.T) {
			h, ran := fakeHost(t, test.system, test.fails)
			file := filepath.Join(h.Home, ".config", "junction", "config.yaml")
			if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(file, []byte("upstreams:\n  a: { command: [b] }\n"), 0o600); err != nil {
				t.Fatal(err)
			}
			s, err := h.Of(file)
			if err != nil {
				t.Fatal(err)
			}
			_, err = s.Install(t.Context())
			if err == nil || !strings.Contains(err.Error(), "failed: no manager; without a service, start Junction with: junction") {
				t.Errorf("the error is %v", err)
			}
			for i, line := range *ran {
				(*ran)[i] = strings.ReplaceAll(line, h.Home, "HOME")
			}
			if !slices.Equal(*ran, test.want) {
				t.Errorf("it ran\n%s\nwant\n%s", strings.Join(*ran, "\n"), strings.Join(test.want, "\n"))
			}
			if s.Installed() {
				t.Error("the definition stays")
			}
		})
	}
}

// TestForeignDefinitionStays: a unit that somebody else has written is neither replaced nor removed.
func TestForeignDefinitionStays(t *testing.T) {
	h, ran := fakeHost(t, "linux", "")
	file := filepath.Join(h.Home, ".config", "junction", "config.yaml")
	unit := filepath.Join(h.Home, ".config", "systemd", "user", "junction.service")
	for name, text := range map[string]string{file: "upstreams:\n  a: { command: [b] }\n", unit: "[Service]\n"} {
		if err := os.MkdirAll(filepath.Dir(name), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	s, err := h.Of(file)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Install(t.Context()); err == nil || !strings.Contains(err.Error(), "junction did not write it") {
		t.Errorf("install gave %v", err)
	}
	if _, err := s.Uninstall(t.Context()); err == nil || !strings.Contains(err.Error(), "junction did not write it") {
		t.Errorf("uninstall gave %v", err)
	}
	if text, err := os.ReadFile(unit); string(text) != "[Service]\n" || len(*ran) > 0 {
		t.Errorf("the unit is %q, %v after %q", text, err, *ran)
	}
	if _, err := h.Of(filepath.Join(h.Home, "a\nb.yaml")); err == nil || !strings.Contains(err.Error(), "control character") {
		t.Errorf("a path with a line break gave %v", err)
	}
}

// TestLacking: the variables of the shell that the configuration uses are kept for the owner only, and
// others are not.
func TestLacking(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "config.yaml")
	text := "upstreams:\n  a: { command: [b], inherit_env: [W31_PASSED, W31_UNSET], env: { T: \"${W31_TOKEN}\" } }\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	const secret = "canary-of-the-shell"
	t.Setenv("W31_TOKEN", secret)
	t.Setenv("W31_PASSED", "1")
	t.Setenv("W31_OTHER", "2")
	lacking := Lacking(file)
	if want := []string{"W31_PASSED", "W31_TOKEN"}; !slices.Equal(lacking, want) {
		t.Fatalf("lacking are %q, want %q", lacking, want)
	}
	name, err := KeepVariables(file, lacking)
	if err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(name)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the file has %v, %v", info.Mode(), err)
	}
	all, err := config.Environment(file)
	if err != nil || len(all) != 2 || all["W31_TOKEN"] != secret || len(Lacking(file)) > 0 {
		t.Errorf("the variables are %d, %v", len(all), err)
	}
	t.Setenv("W31_TOKEN", "two\nlines")
	if _, err := KeepVariables(file, lacking); err == nil || !strings.Contains(err.Error(), "several lines") {
		t.Errorf("a value of two lines gave %v", err)
	}
}

// TestLogIsBounded: a full log becomes the old one.
func TestLogIsBounded(t *testing.T) {
	name := filepath.Join(t.TempDir(), "a", "log")
	l, err := openLog(name)
	if err != nil {
		t.Fatal(err)
	}
	defer l.close()
	for range 3 {
		if _, err := l.Write(make([]byte, maxLog/2+1)); err != nil {
			t.Fatal(err)
		}
	}
	for _, file := range []string{name, name + ".old"} {
		if info, err := os.Stat(file); err != nil || info.Size() > maxLog {
			t.Errorf("%s: %v, %v", file, info, err)
		}
	}
}

// TestProgramOfGoRun: the program of go run is gone after it, so that no service gets its path.
func TestProgramOfGoRun(t *testing.T) {
	for program, want := range map[string]bool{
		"/tmp/go-build2154/b001/exe/junction": true, "/home/u/go/bin/junction": false, "/opt/exe/junction": false,
		"/junction": false, "/tmp/go-build2154/b001/service.test": false,
	} {
		if got := temporary(program); got != want {
			t.Errorf("temporary(%q) = %v, want %v", program, got, want)
		}
	}
}
