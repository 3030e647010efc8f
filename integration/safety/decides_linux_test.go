package safety

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"junction/integration/harness"
)

// TestSandboxesOfPacksAndOfTheFileKnowEachOther starts the program where commands have left links for
// others: a tool of a pack, an entry that is off, a server of a pack that is off, and an entry for a tool
// of a pack. Nothing reads the secret. A command that could change a manifest, or the program of another
// command, does not start.
func TestSandboxesOfPacksAndOfTheFileKnowEachOther(t *testing.T) {
	defer harness.Computes(t)()
	mustEnforce(t)
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	write := func(name, text string) {
		file := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(strings.ReplaceAll(text, "BASE", dir)), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	write("secret/text", "the secret")
	for _, by := range []string{"entry", "tool", "off", "server"} {
		write(by+"/file", "a file")
		if err := os.Symlink(filepath.Join(dir, "secret"), filepath.Join(dir, by, "link")); err != nil {
			t.Fatal(err)
		}
	}
	write("programs/server", "#!/bin/sh\n")
	write("pack/pack.yaml", `
tools:
  plain: { description: d, command: [cat, BASE/entry/file], sandbox: { read: [BASE/entry/file], require: true } }
  linked: { description: d, command: [cat, BASE/entry/link/text], sandbox: { read: [BASE/entry/link], require: true } }
  writer: { description: d, command: ["true"], sandbox: { write: [BASE/tool], require: true } }
`)
	write("served/pack.yaml", `
servers:
  ev: { description: d, command: [BASE/programs/server], sandbox: { write: ["${PACK_DIR}"], require: true } }
`)
	write("idle/pack.yaml", `
servers:
  s: { description: d, command: [cat], sandbox: { write: ["${IDLE}"] } }
`)
	p := harness.NewProgram(t)
	p.MustConfigure(t, strings.ReplaceAll(`
upstreams:
  entry: { command: [junction, demo], sandbox: { write: [BASE/entry], require: true } }
  off: { command: [junction, demo], sandbox: { write: ["${OFF}/off"] }, enabled: false }
  idle: { pack: BASE/idle, servers: [s], env: { IDLE: "${OFF}/server" }, enabled: false }
  dev: { pack: BASE/pack }
  served: { pack: BASE/served, servers: [ev] }
  led-tool: { command: [junction, demo], sandbox: { read: [BASE/tool/link], require: true } }
  led-off: { command: [junction, demo], sandbox: { read: [BASE/off/link], require: true } }
  led-server: { command: [junction, demo], sandbox: { read: [BASE/server/link], require: true } }
  programs: { command: [junction, demo], sandbox: { write: [BASE/programs], require: true } }
  free: { command: [BASE/programs/server] }
`, "BASE", dir))
	env := []string{"OFF=" + dir, "PATH=" + filepath.Dir(harness.PackBinary(t)) + ":" + os.Getenv("PATH")}
	cmd := exec.Command(harness.JunctionBinary(t), "--config", p.File())
	cmd.Env = append(os.Environ(), env...)
	p.MustStart(t, cmd)
	got := mustSettle(t, p)
	for name, want := range map[string]string{
		"entry": "ready", "dev": "ready", "led-tool": "tool/link is a link", "led-off": "off/link is a link",
		"led-server": "server/link is a link", "served-ev": "lets the command change the manifest",
		"programs": "lets the command change the program of upstreams.free",
	} {
		if s := got[name]; want == "ready" && s[0] != want || want != "ready" && (s[0] == "ready" ||
			!strings.Contains(s[2], want)) {
			t.Errorf("%s is %q, want %s", name, s, want)
		}
	}
	for tool, want := range map[string]string{"plain": "a file", "linked": "entry/link is a link below"} {
		out, stderr, _ := harness.RunJunction(t, nil, "call", "--url", p.URL, "dev__"+tool)
		if !strings.Contains(out+stderr, want) || strings.Contains(out, "the secret") {
			t.Errorf("the tool %s returns %q%q, want %q", tool, out, stderr, want)
		}
	}
	out, _, err := harness.RunJunction(t, env, "check", "--config", p.File())
	for _, want := range []string{"upstreams.served-ev.sandbox.write[0]: lets the command change the manifest",
		"upstreams.programs.sandbox.write[0]: lets the command change the program of upstreams.free"} {
		if err == nil || !strings.Contains(out, want) {
			t.Errorf("check (%v) does not say %q:\n%s", err, want, out)
		}
	}
}
