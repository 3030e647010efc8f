package main

import (
	"bytes"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"junction/auth/authtest"
)

func TestMain(m *testing.M) {
	// The configuration of the person who runs the tests must not be used.
	if err := os.Setenv("XDG_CONFIG_HOME", filepath.Join(os.TempDir(), "junction-tests-have-no-configuration")); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(m.Run())
}

// ran is what a run of the program gave.
type ran struct {
	code           int
	stdout, stderr string
}

func runProgram(t testing.TB, stdin string, args ...string) ran {
	t.Helper()
	var stdout, stderr bytes.Buffer
	out, errs := authtest.Command(t, args, &stdout, &stderr)
	code := run(t.Context(), args, strings.NewReader(stdin), out, errs)
	return ran{code, stdout.String(), stderr.String()}
}

// TestExitCodes is about what a shell learns; what a person reads is in the stories of
// integration/script/testdata/script.
func TestExitCodes(t *testing.T) {
	dir := t.TempDir()
	mustWrite(t, filepath.Join(dir, "good.yaml"), "upstreams: { demo: { command: [junction, demo] } }\n")
	mustWrite(t, filepath.Join(dir, "bad.yaml"), "upstreams:\n")
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	for _, tt := range []struct {
		args   string
		code   int
		stdout string // a part of it; "" is nothing at all
		stderr string // likewise
	}{
		{"version", 0, "junction ", ""},
		{"--version", 0, "junction ", ""},
		{"help", 0, "Usage:", ""},
		{"help tools", 0, "junction tools [GLOB]", ""},
		{"check --config good.yaml", 0, "ok: 1 upstream\n", ""},
		{"check --config bad.yaml", 1, "bad.yaml:1: upstreams: ", "junction: bad.yaml has 1 mistake; Junction does not start because of line 1\n"},
		{"--config bad.yaml", 1, "", "junction: bad.yaml has 1 mistake; nothing was started\n"},
		{"--config none.yaml", 1, "", "junction: read the configuration none.yaml: "},
		{"--listen " + taken.Addr().String(), 1, "", "; stop that, or set --listen to another port"},
		{"--listen 192.0.2.1:1", 2, "", "needs auth.api_keys or auth.oauth and an https public_url"},
		{"check", 2, "", "check needs --config FILE"},
		{"help me", 2, "", `there is no command "me"`},
		{"version 2", 2, "", `version takes no arguments, and got "2"`},
		{"demo on", 2, "", `demo takes no arguments, and got "on"`},
		{"--config", 2, "", "flag needs an argument"},
		{"check --bogus", 2, "", "unknown flag: --bogus; see junction help check"},
	} {
		t.Run(tt.args, func(t *testing.T) {
			t.Chdir(dir)
			t.Setenv("XDG_STATE_HOME", t.TempDir())
			got := runProgram(t, "", strings.Fields(tt.args)...)
			if got.code != tt.code {
				t.Errorf("exit code %d, want %d", got.code, tt.code)
			}
			for name, text := range map[string][2]string{"stdout": {got.stdout, tt.stdout}, "stderr": {got.stderr, tt.stderr}} {
				if got, want := text[0], text[1]; !strings.Contains(got, want) || want == "" && got != "" {
					t.Errorf("%s is %q, want %q in it", name, got, want)
				}
			}
			if tt.code == 2 && strings.Count(got.stderr, "\n") != 1 {
				t.Errorf("stderr %q has not exactly one line", got.stderr)
			}
		})
	}
}

// TestDemoCommand speaks to the demo server as an upstream's process would.
func TestDemoCommand(t *testing.T) {
	got := runProgram(t, `{"jsonrpc":"2.0","id":1,"method":"ping"}`+"\n", "demo")
	if want := `{"jsonrpc":"2.0","id":1,"result":{}}` + "\n"; got.code != 0 || got.stdout != want {
		t.Errorf("demo gave %d, %q, %q; want 0, %q", got.code, got.stdout, got.stderr, want)
	}
}

func mustWrite(t testing.TB, file, text string) {
	t.Helper()
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}
