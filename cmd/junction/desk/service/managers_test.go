package service

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"junction/cmd/junction/base/config"
	"junction/cmd/junction/base/runfile"
)

// TestHelperLives is a process that lives until it is ended.
func TestHelperLives(t *testing.T) {
	if os.Getenv("JUNCTION_TEST_LIVES") == "" {
		t.Skip("it runs for another test")
	}
	os.Stdout.WriteString("lives\n")
	_, _ = os.Stdin.Read(make([]byte, 1)) // until the end of the test
}

// mustServe starts a process that is recorded as one that serves the file.
func mustServe(t *testing.T, file string) runfile.Process {
	t.Helper()
	cmd := exec.Command(os.Args[0], "-test.run=^TestHelperLives$", "-test.timeout=1m") // if it does not begin, either
	cmd.Env = append(os.Environ(), "JUNCTION_TEST_LIVES=1")
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := bufio.NewReader(out).ReadString('\n'); err != nil { // it runs
		t.Fatal(err)
	}
	t.Cleanup(func() { in.Close(); _ = cmd.Wait() })
	p := runfile.Place{URL: "http://127.0.0.1:1/mcp", Process: runfile.ProcessOf(cmd.Process.Pid), File: file}
	text, err := json.Marshal(p)
	if err != nil {
		t.Fatal(err)
	}
	dir, err := config.StateDir(os.LookupEnv)
	if err != nil {
		t.Fatal(err)
	}
	name := filepath.Join(dir, "junction", "running", config.FolderOf(file)+"."+strconv.Itoa(p.PID)+".json")
	if err := os.MkdirAll(filepath.Dir(name), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(name, text, 0o600); err != nil {
		t.Fatal(err)
	}
	return p.Process
}

// mustInstall writes the file of a service, with more keys, and the definition of an older install. The file has
// no admin address: in a bubble, whatever listened at the default one would keep the time from passing.
func mustInstall(t *testing.T, h *Host, keys string) *Service {
	t.Helper()
	file := filepath.Join(h.Home, ".config", "junction", "config.yaml")
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte("admin: \"\"\nupstreams:\n  a: { command: [b] }\n"+keys), 0o600); err != nil {
		t.Fatal(err)
	}
	s, err := h.Of(file)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Dir(s.file), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(s.file, s.text, 0o600); err != nil {
		t.Fatal(err)
	}
	return s
}

// TestManagersThatDoNotWait: launchd and the task scheduler say that a process has ended when it has not, and
// do not start another one until then. A restart ends the old process itself, and returns the new one.
func TestManagersThatDoNotWait(t *testing.T) {
	for system, starts := range map[string]string{"darwin": "launchctl bootstrap", "windows": "schtasks /Run"} {
		t.Run(system, func(t *testing.T) {
			h, ran := fakeHost(t, system, "")
			s := mustInstall(t, h, "")
			old := mustServe(t, s.unit.File)
			forgotten := false // launchd also forgets a job after its process has ended
			var now runfile.Process
			run := h.Run
			h.Run = func(ctx context.Context, name string, args ...string) (string, error) {
				line := strings.Join(append([]string{name}, args...), " ")
				output, err := run(ctx, name, args...)
				switch {
				case !strings.HasPrefix(line, starts):
				case old.Alive():
					t.Errorf("%s while the old process runs", line)
				case system == "darwin" && !forgotten:
					forgotten = true
					return "Bootstrap failed: 5: Input/output error", errors.New("exit status 5")
				default:
					now = mustServe(t, s.unit.File)
				}
				return output, err
			}
			p, err := s.Restart(t.Context())
			if err != nil || p.Process != now || now.PID == 0 {
				t.Errorf("Restart gives %+v, %v after %q, want process %d", p, err, *ran, now.PID)
			}
		})
	}
}

// TestTwoStartsAtOnce: of two starts of what does not run, the second one waits, and finds the process of the
// first one. It does not start it again, which would end that process.
func TestTwoStartsAtOnce(t *testing.T) {
	h, _ := fakeHost(t, "linux", "")
	s := mustInstall(t, h, "")
	synctest.Test(t, func(t *testing.T) {
		type result struct {
			place  runfile.Place
			serves bool
			err    error
		}
		second := make(chan result, 1)
		var process runfile.Process
		run, starts := h.Run, 0
		h.Run = func(ctx context.Context, name string, args ...string) (string, error) {
			if slices.Contains(args, "restart") {
				if starts++; starts == 1 {
					go func() {
						p, serves, err := s.Start(t.Context())
						second <- result{p, serves, err}
					}()
					synctest.Wait()
					process = mustServe(t, s.unit.File)
				}
			}
			return run(ctx, name, args...)
		}
		p, serves, err := s.Start(t.Context())
		if err != nil || serves || p.Process != process {
			t.Errorf("the first start gives %+v, %v, %v; want process %d", p, serves, err, process.PID)
		}
		got := <-second
		if got.err != nil || !got.serves || got.place.Process != process || starts != 1 {
			t.Errorf("the second start gives %+v after %d starts; want process %d", got, starts, process.PID)
		}
	})
}

// TestManagerThatStartsNothing: a manager that says that it has started a process, and has not, is no success.
func TestManagerThatStartsNothing(t *testing.T) {
	for _, system := range []string{"linux", "darwin", "windows"} {
		t.Run(system, func(t *testing.T) {
			h, _ := fakeHost(t, system, "")
			s := mustInstall(t, h, "")
			synctest.Test(t, func(t *testing.T) {
				p, err := s.Restart(t.Context())
				if err == nil || !strings.Contains(err.Error(), "it does not serve after ") {
					t.Errorf("Restart gives %+v, %v", p, err)
				}
			})
		})
	}
}

// TestManagersGiveTheTimeOfTheFile: a call may need longer than the default of a manager, which kills the
// process then.
func TestManagersGiveTheTimeOfTheFile(t *testing.T) {
	for system, want := range map[string]string{"linux": "Type=notify\nTimeoutStopSec=160\n",
		"darwin": "<key>ExitTimeOut</key>\n  <integer>160</integer>\n"} {
		h, _ := fakeHost(t, system, "")
		text := string(mustInstall(t, h, "shutdown_grace: 2m\ndrain_delay: 30s\n").text)
		for line := range strings.Lines(want) {
			if !strings.Contains(text, line) {
				t.Errorf("the definition of %s has no %q:\n%s", system, line, text)
			}
		}
	}
}

// TestEndKillsAfterTheTime: a process that has begun to end gets no second signal, which would cut off its
// calls. It is killed when its time is over, and only then.
func TestEndKillsAfterTheTime(t *testing.T) {
	h, _ := fakeHost(t, "linux", "")
	file := filepath.Join(h.Home, "config.yaml")
	p := runfile.Place{Process: mustServe(t, file), File: file, Grace: time.Hour, Until: time.Now().Add(time.Hour)}
	if p.Start == "" {
		t.Skip("this system does not tell when a process has started")
	}
	var told []string
	h.Tell = func(line string) {
		told = append(told, line)
		if killed := strings.HasSuffix(line, "is killed."); !killed && !p.Alive() {
			t.Errorf("the process was ended before its time was over: %q", told)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := h.end(ctx, p); !errors.Is(err, context.Canceled) || !p.Alive() {
		t.Fatalf("end gave %v, and the process lives: %v", err, p.Alive())
	}
	p.Until = time.Now().Add(time.Millisecond)
	if err := h.end(t.Context(), p); err != nil || p.Alive() {
		t.Errorf("end gave %v, and the process lives: %v", err, p.Alive())
	}
	if n := len(told); n == 0 || !strings.HasSuffix(told[n-1], "is killed.") {
		t.Errorf("it told %q", told)
	}
}

// TestEndSparesOtherPrograms: the process that has the PID of one that has ended is not signaled.
func TestEndSparesOtherPrograms(t *testing.T) {
	h, _ := fakeHost(t, "linux", "")
	file := filepath.Join(h.Home, "config.yaml")
	p := runfile.Place{Process: mustServe(t, file), File: file, URL: "http://127.0.0.1:1/mcp"}
	if p.Start == "" {
		t.Skip("this system does not tell when a process has started")
	}
	was := p
	was.Start = "1" + p.Start
	if err := h.end(t.Context(), was); err != nil || !p.Alive() {
		t.Errorf("end gave %v, and the other program lives: %v", err, p.Alive())
	}
}

// TestBackgroundHasTheVariablesOfAService: a server that works only in this shell does not work in the
// process in the background either.
func TestBackgroundHasTheVariablesOfAService(t *testing.T) {
	h, _ := fakeHost(t, "linux", "")
	t.Setenv("JUNCTION_TEST_TOKEN", "canary-of-the-shell")
	u, err := h.unit(filepath.Join(h.Home, "config.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	all := h.environ(u)
	for _, variable := range all {
		name, _, _ := strings.Cut(variable, "=")
		if !slices.Contains(u.Env, variable) && !slices.Contains(session, name) {
			t.Errorf("it has the variable %s", name)
		}
	}
	if !slices.Contains(all, "HOME="+h.Home) || !slices.ContainsFunc(all, func(v string) bool { return strings.HasPrefix(v, "PATH=") }) {
		t.Errorf("it lacks HOME or PATH; it has %d variables", len(all))
	}
}

// TestServiceHasTheSettingsOfTheShell: a command of the service downloads its package as it did in the shell, by
// the same certificates, registries and caches. The definition gets no token and no password of a registry.
func TestServiceHasTheSettingsOfTheShell(t *testing.T) {
	h, _ := fakeHost(t, "linux", "")
	all := map[string]bool{
		"SSL_CERT_FILE=/ca.pem": true, "NODE_EXTRA_CA_CERTS=/ca.pem": true, "REQUESTS_CA_BUNDLE=/ca.pem": true,
		"npm_config_registry=https://r": true, "NPM_CONFIG_CAFILE=/ca.pem": true, "UV_INDEX_URL=https://r": true, "UV_NATIVE_TLS=1": true,
		"https_proxy=http://p": true, "npm_config__authToken=canary": false, "npm_config_proxy=http://u:canary@p": false,
		"UV_DEFAULT_INDEX=https://u:canary@r": false, "UV_PUBLISH_TOKEN=canary": false, "NODE_OPTIONS=--inspect": false, "TERM=xterm": false,
	}
	for variable := range all {
		name, value, _ := strings.Cut(variable, "=")
		t.Setenv(name, value)
	}
	u, err := h.unit(filepath.Join(h.Home, "config.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	for variable, want := range all {
		name, _, _ := strings.Cut(variable, "=")
		if got := slices.Contains(u.Env, variable); got != want {
			t.Errorf("the service has %s: %v, want %v", name, got, want)
		}
	}
}
