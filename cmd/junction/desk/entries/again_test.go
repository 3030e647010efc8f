package entries

import (
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"

	"junction/cmd/junction/base/config"
	"junction/cmd/junction/desk/clients"
)

// TestCommandsAtOnceAllChangeTheFile: several commands have read the same file, or that there is none, and then all
// of them change it. Each change is in the file.
func TestCommandsAtOnceAllChangeTheFile(t *testing.T) {
	home := t.TempDir()
	t.Setenv("HOME", home)
	t.Setenv("XDG_CONFIG_HOME", "")
	t.Setenv("XDG_STATE_HOME", "")
	const old = "upstreams:\n  off: { command: [sh] }\n  gone: { command: [sh] }\n"
	for name, text := range map[string]string{"a file": old, "no file yet": ""} {
		t.Run(name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "config.yaml")
			if text != "" {
				if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			change := map[string]func(*Editor) error{}
			for n := range 4 {
				change[fmt.Sprint("new", n)] = func(e *Editor) error {
					entry, err := e.Entry(clients.Given{Command: []string{"sh"}, Off: true})
					if err != nil {
						return err
					}
					return e.Add(t.Context(), fmt.Sprint("new", n), entry, "sh", nil, "")
				}
			}
			want := slices.Collect(maps.Keys(change))
			if text != "" {
				want = append(want, "off")
				change["off"] = func(e *Editor) error { return e.Switch(t.Context(), false, "off") }
				change["gone"] = func(e *Editor) error { return e.Remove(t.Context(), "gone") }
			}
			var group sync.WaitGroup
			for name, does := range change {
				e, err := Edit(io.Discard, file, false, true)
				if err != nil {
					t.Fatal(err)
				}
				group.Go(func() {
					if err := does(e); err != nil {
						t.Errorf("%s: %v", name, err)
					}
				})
			}
			group.Wait()
			c, _, err := config.Load(file, os.LookupEnv)
			if err != nil {
				t.Fatal(err)
			}
			slices.Sort(want)
			if got := slices.Sorted(maps.Keys(c.Upstreams)); !slices.Equal(got, want) {
				t.Errorf("the file has %v, want %v", got, want)
			}
			if text != "" && !c.Upstreams["off"].Off() {
				t.Error("off is not disabled")
			}
		})
	}
}

// TestAChangeThatFailsIsNotRepeated: another process has changed the file, and now it has the name already.
func TestAChangeThatFailsIsNotRepeated(t *testing.T) {
	home := t.TempDir()
	t.Setenv("HOME", home)
	file := filepath.Join(home, "config.yaml")
	var editors []*Editor
	for range 2 {
		e, err := Edit(io.Discard, file, false, true)
		if err != nil {
			t.Fatal(err)
		}
		editors = append(editors, e)
	}
	var errs []error
	for _, e := range editors {
		entry, err := e.Entry(clients.Given{Command: []string{"sh"}, Off: true})
		if err != nil {
			t.Fatal(err)
		}
		errs = append(errs, e.Add(t.Context(), "one", entry, "sh", nil, ""))
	}
	if errs[0] != nil || errs[1] == nil ||
		"~/config.yaml has an upstream one already; choose another name, or run first: junction remove one --config "+file != errs[1].Error() {
		t.Errorf("the errors are %v", errs)
	}
}
