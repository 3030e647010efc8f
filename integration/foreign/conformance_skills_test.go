//go:build unix

package foreign

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"junction/integration/harness"
	"junction/integration/harness/npm"
)

// TestConformanceSkills has the suite judge skills of a server of FastMCP and of a pack, of the same
// names: directly, on /mcp, and on the endpoint of each, where what passes directly must pass too.
func TestConformanceSkills(t *testing.T) {
	harness.WithoutShort(t)
	python := os.Getenv("JUNCTION_FASTMCP")
	if python == "" {
		t.Skip("JUNCTION_FASTMCP is not set; name a Python with the package fastmcp, version 4")
	}
	defer harness.Computes(t)()
	npm.MustFolder(t)
	dir := mustSkills(t)
	fastmcp := mustFastMCP(t, python, filepath.Join(dir, "skills"))
	p := harness.MustProgram(t, fmt.Sprintf(`upstreams:
  fast: {url: %q}
  pack: {command: [%q, serve, %q]}
  legacy: {command: [%q, serve, %q], era: legacy}
`, fastmcp, harness.PackBinary(t), dir, harness.PackBinary(t), dir))
	p.MustReady(t, harness.Patience)
	packDirect := mustServePack(t, harness.PackBinary(t), dir)
	places := map[string]string{"mcp": p.URL, "fast": p.URL + "/fast", "pack": p.URL + "/pack", "legacy": p.URL + "/legacy",
		"pack-direct": packDirect}
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
	// FastMCP has no resources/directory/read, so that /mcp has none either.
	const directory = "sep-2640-skills-directory"
	direct := mustConform(t, "server", "--url", packDirect, "--scenario", directory, "--force")
	if n := len(direct.found[directory]); n < 2 {
		t.Fatalf("the suite made %d checks of the pack itself:\n%.2000s", n, direct.said)
	}
	t.Logf("%s: %d checks", directory, len(direct.found[directory]))
	alone := harness.MustProgram(t, fmt.Sprintf("upstreams:\n  pack: {command: [%q, serve, %q]}\n"+
		"  legacy: {command: [%[1]q, serve, %[2]q], era: legacy}\n", harness.PackBinary(t), dir))
	alone.MustReady(t, harness.Patience)
	for place, url := range map[string]string{"mcp": alone.URL, "pack": p.URL + "/pack", "legacy": p.URL + "/legacy"} {
		t.Run(place+"/"+directory, func(t *testing.T) {
			c := mustConform(t, "server", "--url", url, "--scenario", directory, "--force")
			c.check(t, directory, direct, nil)
			if got, want := len(c.found[directory]), len(direct.found[directory]); got != want {
				t.Errorf("%d checks, and %d of the pack itself", got, want)
			}
		})
	}
}
