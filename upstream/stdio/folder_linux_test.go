package stdio

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"junction/auth/authtest"
	"junction/upstream/sandbox"
)

// laidFolders are a folder of a client with the file here, and a secret one beside it.
func laidFolders(t *testing.T) (shop, secret string) {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	shop, secret = filepath.Join(dir, "shop"), filepath.Join(dir, "secret")
	for _, path := range []string{shop, secret} {
		if err := os.Mkdir(path, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	for file, text := range map[string]string{filepath.Join(shop, "here"): "mine", filepath.Join(secret, "here"): linkedSecret} {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return shop, secret
}

func mustRunScript(t *testing.T, script string, f *Folder, c *Confinement) string {
	t.Helper()
	r, err := Run(t.Context(), Options{Command: []string{"/bin/sh", "-c", script}, Folder: f, Confine: c,
		Log: authtest.Log(t)}, nil, 1<<10)
	if err != nil {
		t.Fatal(err)
	}
	return string(r.Output) + r.Stderr
}

// sandboxed are a command without a sandbox, and one with.
func sandboxed(t *testing.T) map[string]*Confinement {
	ways := map[string]*Confinement{"without a sandbox": nil}
	if support := sandbox.Kernel(); support.Missing(&sandbox.Rules{}) == "" {
		ways["with a sandbox"] = &Confinement{Name: "test", Require: true, Support: support}
	} else {
		t.Log("NOT TESTED: " + support.Missing(&sandbox.Rules{}))
	}
	return ways
}

// TestFolderIsTheOneThatWasOpened puts a link to another folder in the place of the folder, after it was
// opened and before the process starts: the process is in the folder that was opened. By the path it reads the other
// folder, unless it has a sandbox.
func TestFolderIsTheOneThatWasOpened(t *testing.T) {
	for way, c := range sandboxed(t) {
		shop, secret := laidFolders(t)
		f := &Folder{Path: shop, Start: true, Open: func() (*os.File, error) {
			dir, err := os.Open(shop)
			if err == nil {
				err = errors.Join(os.Rename(shop, shop+"-old"), os.Symlink(secret, shop))
			}
			return dir, err
		}}
		if got := mustRunScript(t, "cat here", f, c); got != "mine" {
			t.Errorf("%s, the process reads %q", way, got)
		}
		linked := &Folder{Path: shop, Open: func() (*os.File, error) { return os.Open(shop + "-old") }}
		if got := mustRunScript(t, "cat "+shop+"/here; true", linked, c); (got == linkedSecret) != (c == nil) {
			t.Errorf("%s, the path leads to %q", way, got)
		}
		if got := mustRunScript(t, "pwd -P", &Folder{Path: secret, Start: true,
			Open: func() (*os.File, error) { return os.Open(secret) }}, c); strings.TrimSpace(got) != secret {
			t.Errorf("%s, the process is in %q", way, got)
		}
		if got := mustRunScript(t, `echo "$PWD"`, &Folder{Path: secret, Start: true,
			Open: func() (*os.File, error) { return os.Open(secret) }}, c); strings.TrimSpace(got) != secret {
			t.Errorf("%s, PWD is %q", way, got)
		}
	}
}

// TestFolderThatIsAnotherOne starts no process if the folder cannot be opened.
func TestFolderThatIsAnotherOne(t *testing.T) {
	refused := errors.New("another folder was put in its place")
	for way, c := range sandboxed(t) {
		shop, _ := laidFolders(t)
		_, err := Run(t.Context(), Options{Command: []string{"/bin/sh", "-c", "touch " + shop + "/ran"}, Confine: c,
			Folder: &Folder{Path: shop, Start: true, Open: func() (*os.File, error) { return nil, refused }},
			Log:    authtest.Log(t)}, nil, 1<<10)
		if !errors.Is(err, refused) {
			t.Errorf("%s: %v", way, err)
		}
		if _, err := os.Stat(filepath.Join(shop, "ran")); err == nil {
			t.Errorf("%s, the process ran", way)
		}
	}
}

// TestFolderOfASandbox: the command may change the folder of its client, or read it, and nothing beside it.
func TestFolderOfASandbox(t *testing.T) {
	mustEnforce(t)
	for _, start := range []bool{true, false} {
		for _, readOnly := range []bool{true, false} {
			shop, secret := laidFolders(t)
			f := &Folder{Path: shop, Start: start, ReadOnly: readOnly, Open: func() (*os.File, error) { return os.Open(shop) }}
			c := &Confinement{Name: "test", Require: true, Support: sandbox.Kernel()}
			script := "cat " + shop + "/here; touch " + shop + "/new && echo ' new'; mv " + shop + "/new " + shop + "/moved && echo moved" +
				"; cat " + secret + "/here; touch " + secret + "/new"
			got := mustRunScript(t, script, f, c)
			if !strings.HasPrefix(got, "mine") || strings.Contains(got, linkedSecret) {
				t.Errorf("start %v, read only %v: %q", start, readOnly, got)
			}
			if strings.Contains(got, " new") == readOnly || strings.Contains(got, "moved\n") == readOnly {
				t.Errorf("start %v, read only %v: it changes its folder: %q", start, readOnly, got)
			}
			if _, err := os.Stat(filepath.Join(secret, "new")); err == nil {
				t.Errorf("start %v, read only %v: it has changed another folder", start, readOnly)
			}
			if in := strings.TrimSpace(mustRunScript(t, "pwd -P", f, c)); (in == shop) != start {
				t.Errorf("start %v: the process is in %s", start, in)
			}
		}
	}
}

// TestFolderIsNotLeftOpen: a process has no open file of the folder, in a sandbox as without.
func TestFolderIsNotLeftOpen(t *testing.T) {
	for way, c := range sandboxed(t) {
		shop, _ := laidFolders(t)
		if c != nil {
			c.Read = []string{"/proc"}
		}
		f := &Folder{Path: shop, Start: true, Open: func() (*os.File, error) { return os.Open(shop) }}
		if got := mustRunScript(t, "ls -l /proc/self/fd", f, c); strings.Contains(got, shop) || !strings.Contains(got, "0 ->") {
			t.Errorf("%s, it has the files\n%s", way, got)
		}
	}
}

// TestFolderWithProgramsOfTheClient starts a relative program, which is in the folder of the client.
func TestFolderWithProgramsOfTheClient(t *testing.T) {
	for way, c := range sandboxed(t) {
		for _, readOnly := range []bool{true, false} {
			shop, _ := laidFolders(t)
			if err := os.WriteFile(filepath.Join(shop, "server"), []byte("#!/bin/sh\ncat here\n"), 0o700); err != nil {
				t.Fatal(err)
			}
			f := &Folder{Path: shop, Start: true, ReadOnly: readOnly, Open: func() (*os.File, error) { return os.Open(shop) }}
			r, err := Run(t.Context(), Options{Command: []string{"./server"}, Folder: f, Confine: c, Log: authtest.Log(t)}, nil, 1<<10)
			if err != nil || string(r.Output) != "mine" {
				t.Errorf("%s, read only %v: %+v, %v", way, readOnly, r, err)
			}
		}
	}
}

// TestAllFoldersOfAClientAreInItsSandbox: the command may use each folder of its client like the first one, and nothing
// beside them, whatever their paths lead to when it starts.
func TestAllFoldersOfAClientAreInItsSandbox(t *testing.T) {
	mustEnforce(t)
	for _, readOnly := range []bool{true, false} {
		shop, secret := laidFolders(t)
		blog, _ := laidFolders(t)
		open := func() (*os.File, error) {
			dir, err := os.Open(blog)
			if err == nil {
				err = errors.Join(os.Rename(blog, blog+"-old"), os.Symlink(secret, blog))
			}
			return dir, err
		}
		f := &Folder{Path: shop, Start: true, ReadOnly: readOnly, Open: func() (*os.File, error) { return os.Open(shop) },
			Others: []*Folder{{Path: blog, Open: open}}}
		c := &Confinement{Name: "test", Require: true, Support: sandbox.Kernel()}
		script := "pwd -P; cat " + shop + "/here " + blog + "-old/here " + blog + "/here; touch " + shop + "/new " + blog + "-old/new " + secret + "/new"
		got := mustRunScript(t, script, f, c)
		if !strings.HasPrefix(got, shop+"\nminemine") || strings.Contains(got, linkedSecret) {
			t.Errorf("read only %v: %q", readOnly, got)
		}
		for path, want := range map[string]bool{shop: !readOnly, blog + "-old": !readOnly, secret: false} {
			if _, err := os.Stat(filepath.Join(path, "new")); (err == nil) != want {
				t.Errorf("read only %v: it has changed %s: %v, want %v", readOnly, path, err == nil, want)
			}
		}
	}
}
