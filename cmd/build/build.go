// Package build tells which source a program was built from.
package build

import (
	"debug/buildinfo"
	"fmt"
	"runtime"
	"runtime/debug"
	"strings"
)

// Build is where a program comes from. Commit and Date are empty if it was built outside of a
// repository.
type Build struct {
	Version  string `json:"version"` // the tag, or the commit
	Commit   string `json:"commit,omitempty"`
	Date     string `json:"date,omitempty"`     // of the commit
	Modified bool   `json:"modified,omitempty"` // there were uncommitted changes
	Go       string `json:"go"`
	Platform string `json:"platform"`
}

// Read returns the build of this program.
func Read() Build { return read(debug.ReadBuildInfo()) }

// ReadFile returns the build of the program in a file.
func ReadFile(path string) (Build, error) {
	info, err := buildinfo.ReadFile(path)
	if err != nil {
		return Build{}, err
	}
	return read(info, true), nil
}

func read(info *debug.BuildInfo, ok bool) Build {
	b := Build{Version: "devel", Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH}
	if !ok {
		return b
	}
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			b.Commit = s.Value
		case "vcs.time":
			b.Date = s.Value
		case "vcs.modified":
			b.Modified = s.Value == "true"
		}
	}
	if v := info.Main.Version; v != "" && v != "(devel)" {
		b.Version = strings.TrimPrefix(v, "v")
	} else if len(b.Commit) >= 12 {
		b.Version += "-" + b.Commit[:12]
	}
	return b
}

// Text returns three lines for people.
func (b Build) Text(program string) string {
	commit := "commit unknown: the build has none"
	if b.Commit != "" {
		commit = fmt.Sprintf("commit %s of %s", b.Commit, b.Date)
	}
	if b.Modified {
		commit += ", with uncommitted changes"
	}
	return fmt.Sprintf("%s %s\n%s\nbuilt with %s for %s\n", program, b.Version, commit, b.Go, b.Platform)
}
