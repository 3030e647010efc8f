package setup

import (
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestSetupFindsATakenAddressFirst: an address of another program ends the setup before its first question. The error
// has a line with a free port, and with that the setup goes on.
func TestSetupFindsATakenAddressFirst(t *testing.T) {
	const client = `{"mcpServers": {"notes": {"command": "x"}}}`
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	text := "listen: " + l.Addr().String() + "\nadmin: 127.0.0.1:0\n"
	home := atHome(t, map[string]string{".cursor/mcp.json": client, "work/a.yaml": text})
	got := runProgram(t, "", "setup", "--yes", "--config", "a.yaml")
	want := regexp.MustCompile(`^junction: nothing was changed: ` + regexp.QuoteMeta(l.Addr().String()) + ` is taken by ` +
		`another program, perhaps another junction\nTo set up Junction at free ports, write these lines into a\.yaml, and ` +
		`run the same command again:\n  (listen: 127\.0\.0\.1:[0-9]+)\n$`)
	if got.code != 1 || got.stdout != "" || !want.MatchString(got.stderr) {
		t.Fatalf("the setup gave %+v\nwant %s", got, want)
	}
	for file, was := range map[string]string{"a.yaml": text, filepath.Join(home, ".cursor/mcp.json"): client} {
		if is, err := os.ReadFile(file); err != nil || string(is) != was {
			t.Errorf("%s is\n%s\n%v", file, is, err)
		}
	}
	line := want.FindStringSubmatch(got.stderr)[1]
	mustWrite(t, "a.yaml", strings.Replace(text, "listen: "+l.Addr().String(), line, 1))
	g := guide{file: "a.yaml"}
	if err := g.possible(t.Context()); err != nil {
		t.Errorf("with the line %s, the setup still fails: %v", line, err)
	}
}
