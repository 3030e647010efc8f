package config

import (
	"strings"
	"testing"

	"junction/auth/authserver"
	"junction/upstream"
)

// TestSectionsOfModesAreKnown: each section that a mode of credentials needs is found in a file that has it,
// and is missing in a file without it.
func TestSectionsOfModesAreKnown(t *testing.T) {
	full := &Config{Auth: Auth{OAuth: &authserver.Config{}}}
	for _, row := range upstream.Modes() {
		if !full.Has(row.Needs) {
			t.Errorf("%s needs %s, which no file has", row.Word, row.Needs)
		}
		if (&Config{}).Has(row.Needs) != (row.Needs == upstream.SectionNone) {
			t.Errorf("%s needs %s, which an empty file has", row.Word, row.Needs)
		}
	}
}

// TestModesThatStoreOpenTheDatabase: an enabled upstream of a mode that stores its credentials needs the
// database, and one of another mode, or a disabled one, does not.
func TestModesThatStoreOpenTheDatabase(t *testing.T) {
	off := false
	for _, row := range upstream.Modes() {
		for _, enabled := range []*bool{nil, &off} {
			c := &Config{Upstreams: map[string]upstream.Config{"x": {Auth: upstream.Auth{Mode: row.Word}, Enabled: enabled}}}
			if got := c.Stores(); got != (row.Stores && enabled == nil) {
				t.Errorf("%s, enabled %v: %v", row.Word, enabled == nil, got)
			}
		}
	}
	if text := strings.Join(StoringModes(), " "); strings.Contains(text, "none") || text == "" {
		t.Errorf("the modes that need the database are %q", text)
	}
}
