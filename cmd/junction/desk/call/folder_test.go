package call

import (
	"maps"
	"os"
	"path/filepath"
	"testing"
)

// TestFolderOfTheClient: an endpoint on this machine learns the working directory, another one only a folder that
// the client's file names. The root and the home folder count as no folder.
func TestFolderOfTheClient(t *testing.T) {
	home := t.TempDir()
	shop := filepath.Join(home, "my shöp")
	link := filepath.Join(home, "link")
	file := filepath.Join(home, "file")
	if err := os.Mkdir(shop, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(home, link); err != nil {
		t.Skip(err)
	}
	const none = ""
	named := map[string]string{"Junction-Folder": "file://" + filepath.ToSlash(home) + "/my%20sh%C3%B6p"}
	weak := map[string]string{"Junction-Working-Directory": named["Junction-Folder"]}
	for _, test := range []struct {
		name, working, named string
		local                bool
		want                 map[string]string
		fails                bool
	}{
		{"this machine", shop, none, true, weak, false},
		{"another machine", shop, none, false, nil, false},
		{"another machine, named", home, shop, false, named, false},
		{"named", home, shop, true, named, false},
		{"named, relative", home, "my shöp", true, named, false},
		{"named, not replaced", shop, "${workspaceFolder}", true, nil, false},
		{"named, missing", shop, filepath.Join(home, "gone"), true, nil, true},
		{"named, a file", shop, file, true, nil, true},
		{"home", home, none, true, nil, false},
		{"home, by a link", link, none, true, nil, false},
		{"home, named", shop, home, true, nil, false},
		{"root", filepath.VolumeName(home) + string(filepath.Separator), none, true, nil, false},
		{"unknown", none, none, true, nil, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			got, err := where{working: test.working, home: home}.header(test.named, test.local)
			if !maps.Equal(got, test.want) || (err != nil) != test.fails {
				t.Errorf("header(%q, %v) = %v, %v, want %v", test.named, test.local, got, err, test.want)
			}
		})
	}
}
