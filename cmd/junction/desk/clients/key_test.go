package clients

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"junction/cmd/junction/base/revision"
	"junction/cmd/junction/desk/clients/format"
)

const (
	testKey    = "canary-key-of-a-client"
	testNewKey = "canary-key-that-replaces-it"
)

// keyed returns the target of a client whose key is in a file of Connect.
func keyed(o *Outfit, p Place, key string) Target {
	t := testTarget
	t.Program, t.KeyFile, t.Secret = "/bin/junction", o.Records.KeyFile(p.Client, t.URL), key
	return t
}

// mustBeSecret fails unless a file has a content that only its owner can read.
func mustBeSecret(t testing.TB, file, want string) {
	t.Helper()
	info, err := os.Lstat(file)
	if err != nil || info.Mode() != 0o600 || mustRead(t, file) != want {
		t.Fatalf("%s has the mode %v, %v", file, info, err)
	}
	if info, err := os.Stat(filepath.Dir(file)); err != nil || info.Mode().Perm() != 0o700 {
		t.Fatalf("its folder has the mode %v, %v", info, err)
	}
}

// TestEachClientHasAWayToTheKey: one row for each client, for an entry of the user and one of a project.
// The file of a project names no file of a user.
func TestEachClientHasAWayToTheKey(t *testing.T) {
	var rows []string
	for _, c := range All() {
		rows = append(rows, c.ID+" "+c.KeyWay(User).String()+" "+c.KeyWay(Project).String())
	}
	want := []string{"claude-code variable variable", "claude-desktop file variable", "cursor file variable",
		"vscode input input", "codex variable variable", "gemini variable variable", "copilot variable variable",
		"opencode variable variable", "windsurf file variable", "zed file variable", "goose file variable"}
	if !slices.Equal(rows, want) {
		t.Errorf("the ways are\n%s\nwant\n%s", strings.Join(rows, "\n"), strings.Join(want, "\n"))
	}
}

// TestConnectStartsStdio: the entry of each client that starts junction stdio with the file of a key.
func TestConnectStartsStdio(t *testing.T) {
	o := mustOutfit(t, userFiles)
	target := testTarget
	target.Program, target.KeyFile = `C:\j.exe`, `C:\k.key`
	var lines []string
	for _, c := range All() {
		p := mustPlace(t, o, c.ID)
		mustConnect(t, o, p, target)
		text, _ := revision.Read(p.File)
		servers, err := c.format.Servers(text, p.servers(text))
		if err != nil {
			t.Fatal(err)
		}
		i := slices.IndexFunc(servers, func(r format.Server) bool { return r.Name == "junction" })
		line := strings.ReplaceAll(fmt.Sprint(c.ID, " ", servers[i].Fields), testURL, "URL")
		lines = append(lines, strings.ReplaceAll(line, `stdio --url URL --key-file C:\k.key`, "ARGS"))
		mustDisconnect(t, o, p)
	}
	want := `claude-code map[args:[ARGS] command:C:\j.exe type:stdio]
claude-desktop map[args:[ARGS] command:C:\j.exe]
cursor map[args:[ARGS --folder ${workspaceFolder}] command:C:\j.exe]
vscode map[args:[ARGS] command:C:\j.exe type:stdio]
codex map[args:[ARGS] command:C:\j.exe]
gemini map[args:[ARGS] command:C:\j.exe]
copilot map[args:[ARGS] command:C:\j.exe tools:[*] type:local]
opencode map[command:[C:\j.exe ARGS] type:local]
windsurf map[args:[ARGS] command:C:\j.exe]
zed map[args:[ARGS] command:C:\j.exe]
goose map[args:[ARGS] cmd:C:\j.exe description:All MCP servers of Junction enabled:true name:junction type:stdio]`
	if got := strings.Join(lines, "\n"); got != want {
		t.Errorf("the entries are\n%s\nwant\n%s", got, want)
	}
}

// TestConnectKeepsAKey: the key is in a file of the user alone. A new key replaces it without a change to
// the client's file, and a disconnect removes it.
func TestConnectKeepsAKey(t *testing.T) {
	o := mustOutfit(t, userFiles)
	p := mustPlace(t, o, "cursor")
	before := mustRead(t, p.File)
	target := keyed(o, p, testKey)
	if done := mustConnect(t, o, p, target); !done.Changed || !done.Stored {
		t.Errorf("Connect = %+v", done)
	}
	mustBeSecret(t, target.KeyFile, testKey)
	connected := mustRead(t, p.File)
	if again := mustConnect(t, o, p, target); again.Changed || again.Stored {
		t.Errorf("a second Connect = %+v", again)
	}
	if err := os.Chmod(target.KeyFile, 0o644); err != nil {
		t.Fatal(err)
	}
	rotated := mustConnect(t, o, p, keyed(o, p, testNewKey))
	if rotated.Changed || !rotated.Stored || mustRead(t, p.File) != connected {
		t.Errorf("Connect with a new key = %+v\n%s", rotated, mustRead(t, p.File))
	}
	mustBeSecret(t, target.KeyFile, testNewKey)
	mustConnect(t, o, p, keyed(o, p, "")) // without a key the old one stays
	mustBeSecret(t, target.KeyFile, testNewKey)
	if done := mustDisconnect(t, o, p); len(done.Notes) > 0 || mustRead(t, p.File) != before {
		t.Errorf("Disconnect = %+v", done)
	}
	if _, err := os.Stat(filepath.Dir(target.KeyFile)); err == nil {
		t.Error("the folder with the key is still there")
	}
	for _, file := range mustFind(t, o.Home.Dir) {
		if text := mustRead(t, file); strings.Contains(text, testKey) || strings.Contains(text, testNewKey) {
			t.Errorf("%s has the key", file)
		}
	}
}

// mustFind returns all files below a folder.
func mustFind(t testing.TB, dir string) (list []string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() {
			list = append(list, path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return list
}

// TestAKeyThatChangedStays: what a person has written into the file of a key is not deleted, and is named.
func TestAKeyThatChangedStays(t *testing.T) {
	o := mustOutfit(t, userFiles)
	p := mustPlace(t, o, "windsurf")
	target := keyed(o, p, testKey)
	mustConnect(t, o, p, target)
	if err := os.WriteFile(target.KeyFile, []byte("own"), 0o600); err != nil {
		t.Fatal(err)
	}
	done := mustDisconnect(t, o, p)
	if len(done.Notes) != 1 || !strings.Contains(done.Notes[0], "stays, because the file has changed since") {
		t.Errorf("Disconnect = %+v", done)
	}
	mustBeSecret(t, target.KeyFile, "own")
}

// TestAKeyEndsWithItsConnection: the key goes also if the client has dropped the entry, if its file is
// gone, and if the client is connected by another way. A second connection keeps the key that it uses.
func TestAKeyEndsWithItsConnection(t *testing.T) {
	for _, test := range []struct {
		name string
		end  func(t *testing.T, o *Outfit, p Place)
	}{
		{"the entry is gone", func(t *testing.T, o *Outfit, p Place) {
			if err := os.WriteFile(p.File, []byte("{}"), 0o600); err != nil {
				t.Fatal(err)
			}
			mustDisconnect(t, o, p)
		}},
		{"the file is gone", func(t *testing.T, o *Outfit, p Place) {
			if err := os.Remove(p.File); err != nil {
				t.Fatal(err)
			}
			mustDisconnect(t, o, p)
		}},
		{"another way", func(t *testing.T, o *Outfit, p Place) { mustConnect(t, o, p, testTarget) }},
		{"another way, and the entry is gone", func(t *testing.T, o *Outfit, p Place) {
			if err := os.WriteFile(p.File, []byte("{}"), 0o600); err != nil {
				t.Fatal(err)
			}
			mustConnect(t, o, p, testTarget)
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			o := mustOutfit(t, userFiles)
			p := mustPlace(t, o, "cursor")
			target := keyed(o, p, testKey)
			mustConnect(t, o, p, target)
			test.end(t, o, p)
			if _, err := os.Lstat(target.KeyFile); err == nil {
				t.Error("the key of the only connection is still there")
			}
		})
		t.Run(test.name+", with a second one", func(t *testing.T) {
			o := mustOutfit(t, userFiles)
			p := mustPlace(t, o, "cursor")
			target := keyed(o, p, testKey)
			second := p
			second.File += ".other"
			if err := os.WriteFile(second.File, nil, 0o600); err != nil {
				t.Fatal(err)
			}
			mustConnect(t, o, p, target)
			mustConnect(t, o, second, target)
			test.end(t, o, p)
			mustBeSecret(t, target.KeyFile, testKey)
			mustDisconnect(t, o, second)
			if _, err := os.Lstat(target.KeyFile); err == nil {
				t.Error("the key is still there")
			}
		})
	}
}

// TestAFailedConnectLeavesNoKey: the file of the client cannot be written, or the file of the key leads
// elsewhere. Nothing is written there, and nothing is remembered.
func TestAFailedConnectLeavesNoKey(t *testing.T) {
	t.Run("the client's file is read-only", func(t *testing.T) {
		o := mustOutfit(t, userFiles)
		p := mustPlace(t, o, "cursor")
		if err := os.Chmod(p.File, 0o400); err != nil {
			t.Fatal(err)
		}
		target := keyed(o, p, testKey)
		if _, err := o.Connect(context.Background(), p, target, nil); err == nil {
			t.Error("Connect succeeded")
		}
		if _, err := os.Lstat(target.KeyFile); err == nil {
			t.Error("the key is there")
		}
		if rec, err := o.Records.find(p); rec != nil || err != nil {
			t.Errorf("the record is %v, %v", rec, err)
		}
	})
	t.Run("a link", func(t *testing.T) {
		o := mustOutfit(t, userFiles)
		p := mustPlace(t, o, "cursor")
		before, target := mustRead(t, p.File), keyed(o, p, testKey)
		elsewhere := filepath.Join(o.Home.Dir, "elsewhere")
		if err := os.MkdirAll(filepath.Dir(target.KeyFile), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(elsewhere, target.KeyFile); err != nil {
			t.Fatal(err)
		}
		_, err := o.Connect(context.Background(), p, target, nil)
		if err == nil || !strings.Contains(err.Error(), "is not a regular file; remove it") {
			t.Errorf("Connect = %v", err)
		}
		if _, err := os.Lstat(elsewhere); err == nil || mustRead(t, p.File) != before {
			t.Error("a file was written")
		}
		if rec, err := o.Records.find(p); rec != nil || err != nil {
			t.Errorf("the record is %v, %v", rec, err)
		}
	})
}

// TestKeysOfOriginsAreApart: a key is for one server. Only scheme, host and port of a URL make a
// difference, also where the letters of a file name are the same.
func TestKeysOfOriginsAreApart(t *testing.T) {
	r := &Records{File: "/s/connections.json"}
	c, err := Lookup("cursor")
	if err != nil {
		t.Fatal(err)
	}
	files := map[string]string{}
	for _, same := range [][]string{
		{"http://127.0.0.1:8420/mcp", "http://127.0.0.1:8420/mcp/x", "HTTP://user@127.0.0.1:8420/"},
		{"https://127.0.0.1:8420/mcp"}, {"https://mcp.example.com/mcp", "https://MCP.example.com/../../x?y=z"},
		{"https://mcp.example.com:1/mcp"}, {"https://mcp.example.com-1/mcp"},
		{"http://[1::2]:80/mcp"}, {"http://[1:2::]:80/mcp"},
	} {
		for _, address := range same {
			file := r.KeyFile(c, address)
			if other, taken := files[file]; taken && other != same[0] {
				t.Errorf("%s and %s share %s", address, other, file)
			}
			files[file] = same[0]
			if filepath.Dir(file) != r.keys() || r.KeyFile(c, same[0]) != file {
				t.Errorf("KeyFile(%s) = %s", address, file)
			}
		}
	}
}

// TestALiteralKeyIsTakenOut: a file that has a key gets no copy beside it, and is byte for byte what it
// was after a disconnect.
func TestALiteralKeyIsTakenOut(t *testing.T) {
	const key = "jct_key_canary0123456789abcdef"
	text := `{"mcpServers": {"junction": {"url": "` + testURL + `", "headers": {"Authorization": "Bearer ` + key + `"}}}}`
	for _, scope := range []Scope{User, Project} {
		o := mustOutfit(t, map[string]string{".cursor/mcp.json": text, "repo/.cursor/mcp.json": text})
		o.Home.Project = filepath.Join(o.Home.Dir, "repo")
		c, _ := Lookup("cursor")
		p, _ := o.Home.Place(c, scope)
		if got := o.LiteralKey(p, testTarget); got != key {
			t.Errorf("LiteralKey = %q", got)
		}
		done := mustConnect(t, o, p, testTarget)
		if done.Backup != "" || len(done.Notes) != 1 || !strings.Contains(done.Notes[0], "The file had an API key in it.") {
			t.Errorf("Connect = %+v", done)
		}
		for _, file := range mustFind(t, filepath.Dir(p.File)) {
			if bytes.Contains([]byte(mustRead(t, file)), []byte(key)) {
				t.Errorf("%s has the key", file)
			}
		}
		mustDisconnect(t, o, p)
		if got := mustRead(t, p.File); got != text {
			t.Errorf("the file is %s", got)
		}
	}
}
