//go:build unix

package foreign

import (
	"fmt"
	"maps"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"testing"

	"junction/integration/harness"
)

// skillFolders are the skills that both servers of the test have.
var skillFolders = map[string]string{
	"refunds/SKILL.md":       "---\nname: refunds\ndescription: Refund customers.\nlicense: MIT\n---\nWrite [the mail](mail.md).\n",
	"refunds/mail.md":        "Dear customer ü\n",
	"git-workflow/SKILL.md":  "---\nname: git-workflow\ndescription: Branch and commit.\n---\nCommit often.\n",
	"git-workflow/a/b/c.txt": "deep",
}

// TestConformanceSkills has the suite judge skills of a server of FastMCP and of a pack, of the same
// names: directly, on /mcp, and on the endpoint of each, where what passes directly must pass too.
func TestConformanceSkills(t *testing.T) {
	harness.WithoutShort(t)
	python := os.Getenv("JUNCTION_FASTMCP")
	if python == "" {
		t.Skip("JUNCTION_FASTMCP is not set; name a Python with the package fastmcp, version 4")
	}
	defer harness.Computes(t)()
	harness.MustNPM(t)
	dir := t.TempDir()
	for name, text := range maps.All(skillFolders) {
		path := filepath.Join(dir, "skills", name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "pack.yaml"), []byte("name: skills\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	port := harness.FreePort(t)
	if _, p, err := net.SplitHostPort(port); err == nil {
		port = p
	}
	script, err := filepath.Abs("testdata/skills_fastmcp.py")
	if err != nil {
		t.Fatal(err)
	}
	harness.MustStartServer(t, exec.Command(python, script, filepath.Join(dir, "skills"), port),
		regexp.MustCompile(`Uvicorn running on`))
	fastmcp := "http://127.0.0.1:" + port + "/mcp"
	p := harness.MustProgram(t, fmt.Sprintf(`upstreams:
  fast: {url: %q}
  pack: {command: [%q, serve, %q]}
  legacy: {command: [%q, serve, %q], era: legacy}
`, fastmcp, harness.PackBinary(t), dir, harness.PackBinary(t), dir))
	p.MustReady(t, harness.Patience)
	places := map[string]string{"mcp": p.URL, "fast": p.URL + "/fast", "pack": p.URL + "/pack", "legacy": p.URL + "/legacy",
		"pack-direct": mustServePack(t, harness.PackBinary(t), dir)}
	// On /mcp both servers have skills of these names, and a client tells them apart by their URIs.
	alike := map[string]map[string]bool{"mcp/sep-2640-skills-enumeration": {"sep-2640-names-should-be-unique": true}}
	for _, scenario := range []string{"sep-2640-skills-enumeration", "sep-2640-skills-manifest"} {
		direct := mustConform(t, "server", "--url", fastmcp, "--scenario", scenario, "--force")
		if n := len(direct.found[scenario]); n < 2 {
			t.Fatalf("the suite made %d checks of the server itself:\n%.2000s", n, direct.said)
		}
		t.Logf("%s: %d checks", scenario, len(direct.found[scenario]))
		for _, place := range slices.Sorted(maps.Keys(places)) {
			t.Run(place+"/"+scenario, func(t *testing.T) {
				c := mustConform(t, "server", "--url", places[place], "--scenario", scenario, "--force")
				c.check(t, scenario, direct, alike[place+"/"+scenario])
				if got, want := len(c.found[scenario]), len(direct.found[scenario]); place == "fast" && got != want {
					t.Errorf("%d checks, and %d of the server itself", got, want)
				}
			})
		}
	}
}
