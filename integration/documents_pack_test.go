package integration

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"junction/integration/harness"
)

// packFolder has the documents of junction-pack, which has keys, commands and flags of its own.
const packFolder = "cmd/junction-pack/"

// checkPack checks a passage of a document of junction-pack, as checkPassage does with others.
func (d *documentCheck) checkPack(p passage) {
	first, _, _ := strings.Cut(p.text, " ")
	switch {
	case p.block && p.language == "yaml" && regexp.MustCompile(`(?m)^upstreams:`).MatchString(p.text):
		d.checkConfig(p)
	case p.block && p.language == "yaml":
		dir := d.t.TempDir()
		if problems := checkedPack(d.t, filepath.Join(dir, "pack.yaml"), p.text); problems != "" {
			d.bad(p.document, p.line, "%s", strings.ReplaceAll(problems, dir, ""))
		}
	case p.block:
	case flagPattern.MatchString(first):
		for _, command := range []string{"call", "list", "serve", "show", "check"} {
			if strings.Contains(runPack(d.t, command, "--help"), flagPattern.FindString(first)+" ") {
				return
			}
		}
		d.bad(p.document, p.line, "no command has a flag %s", p.text)
	case snakePattern.MatchString(p.text):
		if example := d.read(packFolder + "pack.example.yaml"); !regexp.MustCompile(`\b` + p.text + `:`).MatchString(example) {
			d.bad(p.document, p.line, "there is no key %s in pack.example.yaml", p.text)
		}
	}
}

// checkedPack returns the mistakes of a manifest, which may name the documents of the example.
func checkedPack(t testing.TB, file, text string) string {
	t.Helper()
	pets, err := os.ReadFile("../" + packFolder + "petstore.example.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for name, content := range map[string]string{file: text, "petstore.yaml": string(pets), "petstore.example.yaml": string(pets)} {
		if err := os.WriteFile(filepath.Join(filepath.Dir(file), filepath.Base(name)), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.MkdirAll(filepath.Join(filepath.Dir(file), "notes"), 0o700); err != nil { // of a recipe
		t.Fatal(err)
	}
	out := runPack(t, "check", file)
	if strings.Contains(out, " is valid: ") && !strings.Contains(out, "warning: ") {
		return ""
	}
	return out
}

// runPack returns what a command of junction-pack prints.
func runPack(t testing.TB, args ...string) string {
	t.Helper()
	cmd := exec.Command(harness.PackBinary(t), args...)
	cmd.Env = append(os.Environ(), "TOKEN=canary-token", "SEARCH_KEY=canary-search",
		"WEBHOOK_URL=https://chat.example.com/canary-hook")
	out, err := cmd.CombinedOutput()
	if _, exited := err.(*exec.ExitError); err != nil && !exited {
		t.Fatal(err)
	}
	return string(out)
}

// TestPackExample: the example with every key is valid.
func TestPackExample(t *testing.T) {
	text, err := os.ReadFile("../" + packFolder + "pack.example.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if problems := checkedPack(t, filepath.Join(t.TempDir(), "pack.yaml"), string(text)); problems != "" {
		t.Error(problems)
	}
}

// TestPackFirstExample does what the README says: a pack in a repository lists its commits.
func TestPackFirstExample(t *testing.T) {
	text := string(mustReadFile(t, "../"+packFolder+"README.md"))
	_, text, _ = strings.Cut(text, "```yaml\n")
	manifest, text, _ := strings.Cut(text, "```")
	_, command, _ := strings.Cut(text, "$ junction-pack call packs/dev commits ")
	command, _, found := strings.Cut(command, "\n")
	if !found || !strings.Contains(manifest, "commits:") {
		t.Fatalf("the README begins with another example: %s%s", manifest, command)
	}
	harness.PackBinary(t) // which is built from the sources here
	t.Chdir(t.TempDir())
	if err := os.MkdirAll("packs/dev", 0o700); err != nil {
		t.Fatal(err)
	}
	for _, file := range []string{"README", "packs/dev/pack.yaml"} { // the pack is new, and not in the repository
		if err := os.WriteFile(file, []byte(manifest), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, args := range [][]string{{"init", "-q"}, {"add", "README"},
		{"-c", "user.name=Ann", "-c", "user.email=ann@example.com", "commit", "-qm", "the last commit"}} {
		if out, err := exec.Command("git", args...).CombinedOutput(); err != nil {
			t.Fatalf("git %s: %v\n%s", args[0], err, out)
		}
	}
	for _, args := range [][]string{append([]string{"packs/dev", "commits"}, strings.Fields(command)...), {"packs/dev", "commits", "path=README"}} {
		if out := runPack(t, append([]string{"call"}, args...)...); !strings.Contains(out, "the last commit") {
			t.Errorf("call %s printed %q", args, out)
		}
	}
}
