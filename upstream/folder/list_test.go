package folder

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
)

func mustRoots(t *testing.T, l *List) []Root {
	t.Helper()
	roots, err := l.Roots()
	must(t, err)
	return roots
}

// TestListIsOneForAllProcesses permits folders in two processes, which see each other's at once.
func TestListIsOneForAllProcesses(t *testing.T) {
	file := filepath.Join(t.TempDir(), "folders", "a.json")
	proxy, command := NewList(file), NewList(file)
	if got := mustRoots(t, proxy); len(got) != 0 {
		t.Errorf("a missing file has %v", got)
	}
	shop, link := Root{"/u/shop", "/u/shop"}, Root{"/u/blog", "/data/blog"}
	added, err := command.Allow(t.Context(), shop, link, shop)
	must(t, err)
	if !slices.Equal(added, []Root{shop, link}) || !slices.Equal(mustRoots(t, proxy), added) {
		t.Errorf("added %v, and the proxy has %v", added, mustRoots(t, proxy))
	}
	if info, err := os.Stat(file); err != nil || runtime.GOOS != "windows" && info.Mode().Perm() != 0o600 {
		t.Errorf("the file: %v, %v", info, err)
	}
	if added, err := command.Allow(t.Context(), shop); err != nil || len(added) != 0 {
		t.Errorf("a folder that is permitted: %v, %v", added, err)
	}
	removed, err := command.Forget(t.Context(), "/data/blog", "/u/other")
	must(t, err)
	if !slices.Equal(removed, []Root{link}) || !slices.Equal(mustRoots(t, proxy), []Root{shop}) {
		t.Errorf("removed %v, and the proxy has %v", removed, mustRoots(t, proxy))
	}
	must(t, os.Remove(file))
	if got := mustRoots(t, proxy); len(got) != 0 {
		t.Errorf("a removed file has %v", got)
	}
}

// TestListKeepsEachFolder permits folders in many processes at the same time.
func TestListKeepsEachFolder(t *testing.T) {
	file := filepath.Join(t.TempDir(), "a.json")
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			path := fmt.Sprintf("/u/%d", i)
			if _, err := NewList(file).Allow(t.Context(), Root{path, path}); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if got := mustRoots(t, NewList(file)); len(got) != 8 {
		t.Errorf("%d of 8 folders are there", len(got))
	}
}

// TestListIsBounded refuses more folders than the file may have, and a file that is too large or broken
// permits nothing.
func TestListIsBounded(t *testing.T) {
	file := filepath.Join(t.TempDir(), "a.json")
	l := NewList(file)
	var many []Root
	for i := range maxRoots {
		path := fmt.Sprintf("/u/%d", i)
		many = append(many, Root{path, path})
	}
	_, err := l.Allow(t.Context(), many...)
	must(t, err)
	if _, err := l.Allow(t.Context(), Root{"/v", "/v"}); err == nil || !strings.Contains(err.Error(), "1001") {
		t.Errorf("one folder too many: %v", err)
	}
	if got := mustRoots(t, l); len(got) != maxRoots {
		t.Errorf("%d folders are left", len(got))
	}
	for _, text := range []string{"{", `{"folders":[` + strings.Repeat(" ", maxList) + `]}`} {
		must(t, os.WriteFile(file, []byte(text), 0o600))
		if roots, err := l.Roots(); err == nil || len(roots) != 0 || !strings.Contains(err.Error(), file) {
			t.Errorf("a broken file permits %d folders: %v", len(roots), err)
		}
		if _, err := l.Allow(t.Context(), Root{"/v", "/v"}); err == nil {
			t.Error("a broken file was replaced")
		}
	}
}
