package config

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestCheckHasOneNoteAboutAVariable: if nine servers do not need a variable, check does not say so nine times.
func TestCheckHasOneNoteAboutAVariable(t *testing.T) {
	t.Setenv("TICKETS_TOKEN", "canary")
	file := filepath.Join(t.TempDir(), "config.yaml")
	text := `upstreams:
  memory: { command: [sh] }
  files: { command: [sh] }
  tickets: { command: [sh], inherit_env: [TICKETS_TOKEN] }
  web: { url: https://web.example.com/mcp }
  off: { command: [sh], enabled: false }
`
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	r, err := Inspect(file, os.LookupEnv, (*Config).Obstacles)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, note := range r.Notes {
		if strings.Contains(note, "TICKETS_TOKEN") {
			got = append(got, note)
		}
	}
	if len(got) != 1 || !strings.HasPrefix(got[0], "upstreams: files, memory do not get ") {
		t.Errorf("the notes are %q, want one about files and memory", got)
	}
}
