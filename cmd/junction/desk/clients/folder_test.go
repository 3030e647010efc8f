package clients

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestConnectNamesTheFolder: the entry refers to the folder of the client where the client replaces the
// reference, the endpoint has the folder, and the reference cannot break the entry.
func TestConnectNamesTheFolder(t *testing.T) {
	const remote = "https://mcp.example.com/mcp"
	for _, test := range []struct {
		name, client, os, url, key string
		scope                      Scope
		want                       string // in the entry; "" for no folder
	}{
		{"shell", "claude-code", "linux", testURL, "", User, `"${PWD:-}"`},
		{"shell, in a project", "claude-code", "linux", testURL, "", Project, `"${PWD:-}"`},
		{"Windows has no PWD", "claude-code", "windows", testURL, "", User, ""},
		{"another machine", "claude-code", "linux", remote, "", User, ""},
		{"variables by name", "codex", "linux", testURL, "", User, `"PWD"`},
		{"editor", "cursor", "windows", testURL, "", User, `"${workspaceFolder}"`},
		{"editor that starts junction stdio", "cursor", "linux", testURL, "/key", User, `"--folder", "${workspaceFolder}"`},
		{"VS Code without a folder would fail", "vscode", "linux", testURL, "", User, ""},
		{"VS Code in a project", "vscode", "linux", testURL, "", Project, `"${workspaceFolder}"`},
		{"nothing is replaced", "windsurf", "linux", testURL, "", User, ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			o := mustOutfit(t, userFiles)
			o.Home.OS = test.os
			o.Home.Project = filepath.Join(o.Home.Dir, "shop")
			if err := os.Mkdir(o.Home.Project, 0o700); err != nil {
				t.Fatal(err)
			}
			c, err := Lookup(test.client)
			if err != nil {
				t.Fatal(err)
			}
			p, ok := o.Home.Place(c, test.scope)
			if !ok {
				t.Fatal("the client has no such file")
			}
			if err := os.MkdirAll(filepath.Dir(p.File), 0o700); err != nil {
				t.Fatal(err)
			}
			target := testTarget
			target.URL, target.Own, target.KeyFile = test.url, []string{test.url}, test.key
			if _, err := o.Connect(context.Background(), p, target, nil); err != nil {
				t.Fatal(err)
			}
			text := mustRead(t, p.File)
			_, entry, _ := strings.Cut(text, `junction`)
			entry = strings.Join(strings.Fields(entry), " ")
			has := strings.Contains(entry, FolderHeader) || strings.Contains(entry, "--folder")
			if has != (test.want != "") || !strings.Contains(entry, test.want) {
				t.Errorf("the entry is %s, want %s", entry, test.want)
			}
		})
	}
}

// TestConnectStartsStdioForOtherLetters: some clients cannot send a header with letters beyond Latin-1, and every
// request of theirs would fail in such a folder.
func TestConnectStartsStdioForOtherLetters(t *testing.T) {
	for _, test := range []struct {
		client, home, url string
		want              bool
	}{
		{"claude-code", "/home/ann", testURL, false},
		{"claude-code", "/home/日本", testURL, true},
		{"claude-code", "/home/jörg", testURL, false},
		{"claude-code", "/home/日本", "https://mcp.example.com/mcp", false}, // the entry has no folder
		{"codex", "/home/日本", testURL, false},                             // it leaves out the header
		{"windsurf", "/home/日本", testURL, false},
	} {
		c, err := Lookup(test.client)
		if err != nil {
			t.Fatal(err)
		}
		target := testTarget
		target.URL = test.url
		h := Home{OS: "linux", Dir: test.home}
		if target.Bridged = c.Bridges(target, Place{Client: c, Scope: User}, h); target.Bridged != test.want {
			t.Errorf("Bridges(%s, %s, %s) = %v", test.client, test.home, test.url, target.Bridged)
		}
		if target.Key = false; c.Commanded(target) != test.want {
			t.Errorf("%s in %s starts junction stdio: %v", test.client, test.home, !test.want)
		}
	}
}
