package setup

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestDisconnectWithABrokenConfiguration: a mistake in the configuration prevents no disconnect. An entry
// that connect has not written is recognized by what is readable.
func TestDisconnectWithABrokenConfiguration(t *testing.T) {
	const (
		client = "{ \"mcpServers\": { \"other\": { \"command\": \"x\" } } } // mine\n"
		byHand = `{"mcpServers": {"other": {"command": "x"}, "junction": {"url": "http://127.0.0.1:2/mcp"}}}`
		sound  = "listen: 127.0.0.1:2\nupstreams:\n  notes: { command: [x] }\n"
	)
	for _, test := range []struct {
		name, broken   string
		byHand, leaves bool
	}{
		{"no YAML", "upstreams: [", false, false},
		{"an unknown key", "listen: 127.0.0.1:2\nupstreams:\n  notes: { command: [x], tols: {} }\n", false, false},
		{"an unknown key, and an entry by hand", "listen: 127.0.0.1:2\nupstreams:\n  notes: { command: [x], tols: {} }\n", true, false},
		{"no address", "listen: [x]\nupstreams:\n  notes: { command: [x] }\n", false, false},
		{"an address without a port", "listen: x\nupstreams:\n  notes: { command: [x] }\n", false, false},
		{"no YAML, and an entry by hand", "upstreams: [", true, true},
	} {
		t.Run(test.name, func(t *testing.T) {
			home := atHome(t, map[string]string{".cursor/mcp.json": client, ".config/junction/config.yaml": sound})
			file := filepath.Join(home, ".cursor", "mcp.json")
			if test.byHand {
				mustWrite(t, file, byHand)
			} else if got := runProgram(t, "", "connect", "cursor", "--url", "http://127.0.0.1:2/mcp"); got.code != 0 {
				t.Fatal(got)
			}
			mustWrite(t, filepath.Join(home, ".config", "junction", "config.yaml"), test.broken)
			got := runProgram(t, "", "disconnect", "cursor")
			noted := strings.Contains(got.stdout, "An entry that was added by hand may stay: ")
			if got.code != 0 || noted != test.leaves {
				t.Error(got)
			}
			want := client
			if test.leaves {
				want = byHand
			} else if test.byHand {
				want = `{"mcpServers": {"other": {"command": "x"}}}`
			}
			if is, err := os.ReadFile(file); err != nil || string(is) != want {
				t.Errorf("the file of the client is\n%s\n%v, want\n%s", is, err, want)
			}
		})
	}
}

// TestConnectNamesWhatIsThereTwice: a client that keeps its servers lists the tools of those that Junction has
// twice. connect says so, and how to remove them.
func TestConnectNamesWhatIsThereTwice(t *testing.T) {
	for client, twice := range map[string]bool{
		`{"mcpServers": {"notes": {"command": "x"}, "mine": {"command": "y"}}}`: true,
		`{"mcpServers": {"mine": {"command": "y"}}}`:                            false,
	} {
		atHome(t, map[string]string{".cursor/mcp.json": client,
			".config/junction/config.yaml": "listen: 127.0.0.1:2\nupstreams:\n  notes: { command: [x] }\n"})
		got := runProgram(t, "", "connect", "cursor", "--url", "http://127.0.0.1:2/mcp")
		const want = "Cursor has these servers itself, too: notes. To remove those that work in Junction, run: " +
			"junction connect cursor --replace\n"
		if got.code != 0 || strings.Contains(got.stdout, "itself, too") != twice || twice && !strings.Contains(got.stdout, want) {
			t.Errorf("with %s, connect says\n%s%s\nwant %v: %s", client, got.stdout, got.stderr, twice, want)
		}
	}
}

// TestConnectOfAMemberKeepsAll: who connects to the Junction of a team keeps the servers of the client, also those
// that a configuration of their own has, and gets no advice to make or change one. For the Junction of that
// configuration, an import adds them.
func TestConnectOfAMemberKeepsAll(t *testing.T) {
	const url = "http://127.0.0.1:2/mcp"
	const team = "Kept, because only the operator of the Junction at " + url + " knows whether it has them: files. " +
		"Remove by hand those that it has.\n"
	for config, want := range map[string]string{
		"": team,
		"upstreams:\n  files: { command: [x] }\n": team,
		"listen: 127.0.0.1:2\nupstreams:\n  notes: { command: [z] }\n": "Kept, because the configuration does not have " +
			"them: files. junction import --write adds them.\n",
	} {
		files := map[string]string{".cursor/mcp.json": `{"mcpServers": {"files": {"command": "x"}}}`}
		if config != "" {
			files[".config/junction/config.yaml"] = config
		}
		atHome(t, files)
		got := runProgram(t, "", "connect", "cursor", "--url", url, "--replace")
		if got.code != 0 || !strings.Contains(got.stdout, want) || strings.Count(got.stdout, "files") != 1 ||
			want == team && strings.Contains(got.stdout, "import") {
			t.Errorf("with the configuration %q, connect says\n%s%s\nwant %s", config, got.stdout, got.stderr, want)
		}
	}
}
