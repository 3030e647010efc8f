package deploy

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"gopkg.in/yaml.v3"

	"junction/integration/harness"
	"junction/upstream/upstreamtest"
)

// TestOperateRecipeOfSystemd has systemd check the service: without a warning, and exposed to at
// most 2 of 10.
func TestOperateRecipeOfSystemd(t *testing.T) {
	harness.Waits(t)
	analyze := program(t, "systemd-analyze")
	file := filepath.Join(t.TempDir(), "junction.service")
	text := recipe(t, "junction.service", "/usr/local/bin/junction", harness.JunctionBinary(t))
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	socket := filepath.Join(filepath.Dir(file), "junction.socket")
	if err := os.WriteFile(socket, []byte(recipe(t, "junction.socket")), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command(analyze, "verify", file, socket).CombinedOutput(); err != nil || len(out) > 0 {
		t.Errorf("systemd-analyze verify: %v\n%s", err, out)
	}
	if strings.Contains("\n"+text, "\nLoadCredential=") { // systemd starts no unit whose credential is missing
		t.Error("the unit needs a credential, which a team with API keys does not have")
	}
	dropIn := file + ".d"
	if err := os.Mkdir(dropIn, 0o700); err != nil {
		t.Fatal(err)
	}
	secrets := regexp.MustCompile(`(?m)^#   (\[Service\]|LoadCredential=\S+)$`).FindAllStringSubmatch(text, -1)
	if len(secrets) != 2 {
		t.Fatalf("the drop-in of a sign-in has the lines %q", secrets)
	}
	override := filepath.Join(dropIn, "override.conf")
	if err := os.WriteFile(override, []byte(secrets[0][1]+"\n"+secrets[1][1]+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command(analyze, "verify", file).CombinedOutput(); err != nil || len(out) > 0 {
		t.Errorf("systemd-analyze verify with the drop-in: %v\n%s", err, out)
	}
	// Without its file it is not started for ever, and it has a folder of its own.
	for _, want := range []string{`ConditionPathExists=/etc/junction/config\.yaml`, `WorkingDirectory=/var/lib/junction`,
		`StartLimitIntervalSec=[1-9].*`, `StartLimitBurst=[1-9]\d*`} {
		if !regexp.MustCompile("(?m)^" + want + "$").MatchString(text) {
			t.Errorf("the unit has no line %s", want)
		}
	}
	out, err := exec.Command(analyze, "security", "--offline=true", "--threshold=20", file).CombinedOutput()
	if err != nil {
		t.Errorf("systemd-analyze security: %v\n%s", err, out)
	}
}

// TestOperateRecipeOfLogrotate has logrotate rename the audit of a running program. The program writes a
// new file, and both files together are an unbroken order.
func TestOperateRecipeOfLogrotate(t *testing.T) {
	harness.Waits(t)
	logrotate := program(t, "logrotate")
	_, url := upstreamtest.Start(t, upstreamtest.Script{})
	p, logs := harness.NewProgram(t), t.TempDir()
	audit := filepath.Join(logs, "audit.jsonl")
	p.MustConfigure(t, "upstreams: { up: { url: "+url+" } }\naudit: { file: "+audit+" }\n")
	p.MustServe(t)
	p.MustReady(t, harness.Patience)
	call := func() { harness.MustCaller(t, p.URL, harness.ModernEra).MustCall(t, "up__echo", `{}`, "{}") }
	call()
	written := func(name string) bool {
		text, _ := os.ReadFile(name)
		return strings.Contains(string(text), "up__echo")
	}
	for limit := time.Now().Add(harness.Patience); !written(audit); p.MustReady(t, harness.Patience) { // soon
		if time.Now().After(limit) {
			t.Fatal("the audit has no call")
		}
	}
	file := filepath.Join(t.TempDir(), "logrotate.conf")
	text := recipe(t, "logrotate.conf", "/var/log/junction/", logs+"/",
		"/usr/bin/systemctl kill --kill-who=main --signal=HUP junction.service", fmt.Sprint("kill -HUP ", p.Cmd.Process.Pid))
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command(logrotate, "--force", "--state", filepath.Join(t.TempDir(), "state"), file).CombinedOutput()
	if err != nil || len(out) > 0 {
		t.Fatalf("logrotate: %v\n%s", err, out)
	}
	p.Stderr.MustMatch(t, regexp.MustCompile("configuration reloaded"), harness.Patience, p.Done)
	call()
	p.MustStop(t)
	rotated, _ := filepath.Glob(audit + "-*")
	if len(rotated) != 1 {
		t.Fatalf("the rotated files are %q", rotated)
	}
	for _, name := range append(rotated, audit) {
		if !written(name) {
			t.Errorf("%s has no call", name)
		}
	}
	if out, stderr, err := harness.RunJunction(t, nil, "audit", "verify", audit); err != nil {
		t.Errorf("junction audit verify: %v\n%s%s", err, out, stderr)
	}
}

// TestOperateSystemdIsTold has the program tell what a unit with Type=notify waits for, from its start to
// its end. The commands of upstreams cannot speak for it.
func TestOperateSystemdIsTold(t *testing.T) {
	harness.Waits(t)
	name := filepath.Join(t.TempDir(), "notify")
	socket, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: name, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer socket.Close()
	told := make(chan string, 100) // the socket itself holds ten messages, and the watchdog is told during the stop
	go func() {                    // until the socket is closed
		for b := make([]byte, 1000); ; {
			n, err := socket.Read(b)
			if err != nil {
				return
			}
			if text := string(b[:n]); text != "WATCHDOG=1" || len(told) < cap(told)/2 {
				told <- text
			}
		}
	}()
	wants := func(text string) {
		t.Helper()
		for ctx := harness.Patient(t); ; {
			select {
			case got := <-told:
				if strings.HasPrefix(got, text) {
					return
				}
				if got != "WATCHDOG=1" {
					t.Errorf("systemd reads %q, want %q", got, text)
				}
			case <-ctx.Done():
				t.Fatalf("systemd does not read %q", text)
			}
		}
	}
	p := harness.NewProgram(t)
	p.MustConfigure(t, "upstreams: { up: { "+harness.Command(t, "sh", "-c", `echo "has <$NOTIFY_SOCKET$WATCHDOG_USEC>" >&2`)+" } }\n")
	cmd := exec.Command(harness.JunctionBinary(t), "--config", p.File())
	cmd.Env = append(os.Environ(), "NOTIFY_SOCKET="+name, "WATCHDOG_USEC=300000")
	p.MustStart(t, cmd)
	wants("READY=1\nSTATUS=serving http://127.0.0.1:")
	wants("WATCHDOG=1")
	wants("WATCHDOG=1")
	if err := p.Cmd.Process.Signal(syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	wants("RELOADING=1")
	wants("READY=1")
	p.MustStop(t)
	wants("STOPPING=1\nSTATUS=stopping\nEXTEND_TIMEOUT_USEC=20000000")
	if log := p.Stderr.String(); !strings.Contains(log, "has <>") {
		t.Errorf("a command has the variables of systemd:\n%s", log)
	}
}

// TestOperateRecipeOfTheConfiguration has junction check the configuration of the recipes.
func TestOperateRecipeOfTheConfiguration(t *testing.T) {
	harness.Waits(t)
	dir := t.TempDir()
	file := filepath.Join(dir, "config.yaml")
	text := recipe(t, "config.yaml", "${IDP_SECRET}", "canary-secret")
	text = strings.NewReplacer("/var/log/junction/", dir+"/", "/var/lib/junction/", dir+"/").Replace(text)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(harness.JunctionBinary(t), "check", "--config", file)
	cmd.Env = append(os.Environ(), "XDG_STATE_HOME="+t.TempDir())
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("junction check: %v\n%s", err, out)
	}
}

// TestOperateRecipeOfKubernetesIsChecked has junction check the configuration of the chart.
func TestOperateRecipeOfKubernetesIsChecked(t *testing.T) {
	harness.Waits(t)
	dir := t.TempDir()
	key := filepath.Join(dir, "SESSION_KEY")
	text := recipe(t, "kubernetes.yaml", "/etc/junction/secret/SESSION_KEY", key)
	var object struct{ Data map[string]string }
	if err := yaml.NewDecoder(strings.NewReader(text)).Decode(&object); err != nil { // the first of several documents
		t.Fatal(err)
	}
	file := filepath.Join(dir, "config.yaml")
	if err := os.WriteFile(file, []byte(object.Data["config.yaml"]), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(harness.JunctionBinary(t), "check", "--config", file)
	cmd.Env = append(os.Environ(), "XDG_STATE_HOME="+dir, "IDP_SECRET=canary-secret", "POD_IP=10.1.2.3",
		"DATABASE_URL=postgres://canary@localhost/j", "JUNCTION_MASTER_KEYS=a:"+strings.Repeat("canary", 7)+"A=")
	if out, err := cmd.CombinedOutput(); err != nil || strings.Contains(string(out), "WARN") {
		t.Errorf("junction check: %v\n%s", err, out)
	}
}
