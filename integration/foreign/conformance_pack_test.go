//go:build unix

package foreign

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strings"
	"testing"

	"junction/auth/authtest"
	"junction/integration/harness"
	"junction/integration/harness/npm"
)

// conformingPack has what some scenarios of the suite need of a server. Others need features that a
// pack does not have, such as logging and elicitation.
var conformingPack = map[string]string{
	"pack.yaml": `
tools:
  test_simple_text: { description: Text., command: [printf, This is a simple text response for testing.] }
  test_error_handling:
    description: Fails.
    shell: true
    command: ["echo This tool intentionally returns an error for testing >&2; exit 1"]
prompts:
  test_simple_prompt: { description: P., text: This is a simple prompt for testing. }
  test_prompt_with_arguments:
    description: P.
    text: "Prompt with arguments: arg1='{{arg1}}', arg2='{{arg2}}'"
    parameters: { arg1: A., arg2: B. }
resources:
  static: { file: static.txt, uri: "test://static-text" }
`,
	"static.txt": "This is the content of the static text resource.",
}

// ofPacks are the scenarios that a pack passes, by revision.
var ofPacks = map[string][]string{
	harness.LegacyVersion: {"server-initialize", "ping", "tools-list", "tools-call-simple-text", "tools-call-error",
		"server-sse-multiple-streams", "resources-list", "resources-read-text", "prompts-list", "prompts-get-simple",
		"prompts-get-with-args", "dns-rebinding-protection", "server-session-lifecycle"},
	harness.ModernVersion: {"tools-list", "tools-call-simple-text", "tools-call-error", "resources-list",
		"resources-read-text", "sep-2164-resource-not-found", "prompts-list", "prompts-get-simple",
		"prompts-get-with-args", "dns-rebinding-protection", "caching", "http-header-validation"},
}

// TestConformancePack has the suite judge a pack: directly over HTTP, and as an upstream over stdio
// in each era.
func TestConformancePack(t *testing.T) {
	harness.WithoutShort(t)
	harness.Waits(t)
	npm.MustFolder(t)
	dir := t.TempDir()
	for name, text := range conformingPack {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	binary := harness.PackBinary(t)
	p := harness.MustProgram(t, fmt.Sprintf(`upstreams:
  modern: {command: [%q, serve, %q]}
  legacy: {command: [%q, serve, %q], era: legacy}
`, binary, dir, binary, dir))
	p.MustReady(t, harness.Patience)
	urls := map[string]string{"direct": mustServePack(t, binary, dir), "modern": p.URL + "/modern", "legacy": p.URL + "/legacy"}
	for place, url := range urls {
		for revision, names := range ofPacks {
			t.Run(path.Join(place, revision), func(t *testing.T) {
				harness.Waits(t)
				c := mustConform(t, "server", "--url", url, "--requirements", revision)
				for _, scenario := range names {
					t.Run(scenario, func(t *testing.T) {
						c.check(t, scenario, c, nil)
						for _, v := range c.found[scenario] {
							if v.Status == "FAILURE" { // mcp-go does not do everything that the suite warns about
								t.Error(v)
							}
						}
					})
				}
			})
		}
	}
}

// mustServePack serves a pack over HTTP, and returns its URL.
func mustServePack(t *testing.T, binary, dir string) string {
	t.Helper()
	cmd := exec.Command(binary, "serve", "--http", "127.0.0.1:0", dir)
	cmd.Stderr = authtest.Searched(t, "what junction-pack writes")
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cmd.Process.Kill()
		cmd.Wait()
	})
	line, err := bufio.NewReader(out).ReadString('\n')
	_, url, ok := strings.Cut(strings.TrimSpace(line), "serving ")
	if err != nil || !ok {
		t.Fatalf("junction-pack printed %q, %v", line, err)
	}
	return url
}
