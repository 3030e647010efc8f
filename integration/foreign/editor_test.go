package foreign

import (
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"junction/integration/harness"
	"junction/integration/harness/npm"
	"junction/integration/harness/process"
)

// editorSays is what editor.mjs prints.
type editorSays struct {
	Diagnostics []string
	Answers     []struct {
		Text   string
		Labels map[string]string
	}
}

// mustEdit opens a configuration file in the language server for YAML. junction add has created the file, with
// the line for editors and the schema beside it; text replaces the rest. Each question is a word, and a text of the file behind which the cursor stands.
func mustEdit(t *testing.T, text string, questions ...[2]string) editorSays {
	t.Helper()
	dir := t.TempDir()
	file := filepath.Join(dir, "config.yaml")
	add := exec.CommandContext(t.Context(), harness.JunctionBinary(t), "add", "one", "--config", file, "--", "prog")
	add.Env = append(process.OwnerOf(t).EnvironOfOthers(add.Environ()), "HOME="+dir, "XDG_STATE_HOME=", "XDG_CONFIG_HOME=")
	if out, err := add.CombinedOutput(); err != nil {
		t.Fatalf("junction add: %v\n%s", err, out)
	}
	created, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	line, _, _ := strings.Cut(string(created), "\n")
	if err := os.WriteFile(file, []byte(line+"\n"+text), 0o600); err != nil {
		t.Fatal(err)
	}
	args := []string{"editor.mjs", file}
	for _, q := range questions {
		before, _, found := strings.Cut(text, q[1])
		if !found {
			t.Fatalf("the file has no %q", q[1])
		}
		before += q[1]
		line := before[strings.LastIndex(before, "\n")+1:]
		args = append(args, q[0], strconv.Itoa(1+strings.Count(before, "\n")), strconv.Itoa(len(line)))
	}
	ctx, cancel := context.WithTimeout(t.Context(), npm.Patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, "node", args...)
	cmd.Dir = npm.MustFolder(t)
	cmd.Env = process.OwnerOf(t).EnvironOfOthers(cmd.Environ())
	cmd.SysProcAttr = process.ChildAttr(syscall.SIGKILL)
	cmd.Cancel = func() error { process.KillGroup(cmd.Process.Pid); return nil }
	cmd.WaitDelay = 5 * time.Second
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("editor.mjs: %v\n%s%s", err, out, &stderr)
	}
	var says editorSays
	if err := json.Unmarshal(out, &says); err != nil || len(says.Answers) != len(questions) {
		t.Fatalf("editor.mjs: %v in %s", err, out)
	}
	return says
}

// TestEditorKnowsTheKeys: with the schema, the language server for YAML completes keys and words, explains
// a key, and underlines an unknown key and a wrong value, but no reference.
func TestEditorKnowsTheKeys(t *testing.T) {
	harness.WithoutShort(t)
	defer harness.Computes(t)()
	good := mustEdit(t, `listen: "${ADDRESS}"
metrics: ${METRICS}
limits:
  body: 1MiB
policies:
  - name: all
    rules: [{ allow: { tools: [a, b] } }, { deny: { tools: c, where: { x: [{ re: d }, e] } } }]
upstreams:
  files:
    command: [prog, 1]
    idle_stop: ${IDLE:-10m}
    isolation: session
  pack: { pack: ./dev, servers: [search] }
`, [2]string{"hover", "idle_st"}, [2]string{"complete", "isolation: "}, [2]string{"complete", "    idle"})
	if len(good.Diagnostics) > 0 {
		t.Errorf("a valid file has the diagnostics %q", good.Diagnostics)
	}
	if text := good.Answers[0].Text; !strings.Contains(text, "after this time without a call") {
		t.Errorf("the hover over idle_stop is %q", text)
	}
	for _, word := range []string{"shared", "session", "principal"} {
		if _, ok := good.Answers[1].Labels[word]; !ok {
			t.Errorf("after isolation: the editor offers %v, and not %s", good.Answers[1].Labels, word)
		}
	}
	for _, key := range []string{"max_links", "servers"} {
		if good.Answers[2].Labels[key] == "" {
			t.Errorf("the editor does not offer and explain %s in an entry: %v", key, good.Answers[2].Labels)
		}
	}
	bad := mustEdit(t, "upstreams:\n  a: { command: [prog], colour: red }\n  b: { command: [prog], era: old }\n")
	if !slices.ContainsFunc(bad.Diagnostics, func(d string) bool { return strings.Contains(d, "colour") }) ||
		!slices.ContainsFunc(bad.Diagnostics, func(d string) bool { return strings.Contains(d, `"legacy"`) }) {
		t.Errorf("an unknown key and a wrong word have the diagnostics %q", bad.Diagnostics)
	}
}
