package build

import (
	"runtime/debug"
	"testing"
)

// TestVersion: the version is that of the tag, or else of the commit.
func TestVersion(t *testing.T) {
	settings := []debug.BuildSetting{
		{Key: "vcs.revision", Value: "0123456789abcdef0123"}, {Key: "vcs.time", Value: "2026-11-22T10:00:00Z"},
	}
	info := func(version string, settings ...debug.BuildSetting) *debug.BuildInfo {
		return &debug.BuildInfo{Main: debug.Module{Version: version}, Settings: settings}
	}
	for _, test := range []struct {
		name string
		info *debug.BuildInfo
		want string
	}{
		{"tag", info("v1.2.0", settings...), "junction 1.2.0\ncommit 0123456789abcdef0123 of 2026-11-22T10:00:00Z\n"},
		{"commit", info("(devel)", settings...),
			"junction devel-0123456789ab\ncommit 0123456789abcdef0123 of 2026-11-22T10:00:00Z\n"},
		{"changes", info("(devel)", append(settings, debug.BuildSetting{Key: "vcs.modified", Value: "true"})...),
			"junction devel-0123456789ab\ncommit 0123456789abcdef0123 of 2026-11-22T10:00:00Z, with uncommitted changes\n"},
		{"no repository", info("(devel)"), "junction devel\ncommit unknown: the build has none\n"},
		{"no information", nil, "junction devel\ncommit unknown: the build has none\n"},
	} {
		t.Run(test.name, func(t *testing.T) {
			b := read(test.info, test.info != nil)
			want := test.want + "built with " + b.Go + " for " + b.Platform + "\n"
			if got := b.Text("junction"); got != want {
				t.Errorf("the build is\n%s\nwant\n%s", got, want)
			}
		})
	}
}
