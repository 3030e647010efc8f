// Package pages tests the pages for people in a browser: how to connect a client, and the status of
// a running proxy.
package pages

import (
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"junction/integration/harness"
	"junction/integration/harness/needs"
	"junction/integration/harness/npm"
	"junction/integration/harness/process"
)

func TestMain(m *testing.M) { harness.Main(m, nil) }

// window is a browser with one page at a time.
type window struct{ *npm.Script }

// order is a line for ../npm/pages.mjs, which describes it.
type order struct {
	Open     string `json:"open,omitempty"`
	Plain    bool   `json:"plain,omitempty"`
	Wait     string `json:"wait,omitempty"`
	Click    string `json:"click,omitempty"`
	Keyboard bool   `json:"keyboard,omitempty"`
	Then     string `json:"then,omitempty"`
	Shot     string `json:"shot,omitempty"`
}

// seen is what the page shows then.
type seen struct {
	Title, URL, Text, Focus, Clipboard string
	Links                              [][2]string
	Wide                               bool
	Pale, Cut                          []string
	Unnamed                            int
	Errors                             []string
}

// mustWindow starts a browser. Screenshots are left where JUNCTION_SCREENSHOTS says.
func mustWindow(t *testing.T) window {
	t.Helper()
	needs.Chromium.Require(t)
	path, err := needs.Browser()
	if err != nil {
		t.Fatal(err)
	}
	folder := os.Getenv("JUNCTION_SCREENSHOTS")
	if folder != "" {
		folder = filepath.Join(folder, t.Name())
		if err := os.MkdirAll(folder, 0o777); err != nil {
			t.Fatal(err)
		}
	}
	return window{npm.MustTalk(t, "pages.mjs", func(ctx context.Context) *exec.Cmd {
		cmd := exec.CommandContext(ctx, "node", "pages.mjs", path, folder)
		cmd.Dir = npm.MustFolder(t)
		cmd.SysProcAttr = process.ChildAttr(syscall.SIGKILL)
		cmd.WaitDelay = 5 * time.Second
		return cmd
	})}
}

// do carries out an order. The page must fit the smallest window, name its controls, and complain
// about nothing.
func (w window) do(o order) seen {
	w.T.Helper()
	line, err := json.Marshal(o)
	if err != nil {
		w.T.Fatal(err)
	}
	w.MustWrite(string(line))
	var s seen
	w.MustRead(&s)
	if len(s.Errors) > 0 {
		w.T.Fatalf("after %+v the page complains: %q", o, s.Errors)
	}
	if s.Wide || s.Unnamed > 0 || len(s.Pale) > 0 || len(s.Cut) > 0 {
		w.T.Errorf("after %+v the page scrolls sideways: %v; %d controls have no name; too pale: %q; cut off: %q", o, s.Wide,
			s.Unnamed, s.Pale, s.Cut)
	}
	return s
}
