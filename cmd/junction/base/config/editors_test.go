package config

import (
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

// TestSchemaLiesBesideTheFileThatNamesIt: a file with the line for editors has the schema of this program
// beside it, which everybody may read. A file of somebody else stays as it is.
func TestSchemaLiesBesideTheFileThatNamesIt(t *testing.T) {
	older := strings.Replace(Schema(), "draft-07", "draft-04", 1)
	for _, test := range []struct{ name, text, before, want string }{
		{"a new file", EditorLine + "upstreams: {}\n", "", Schema()},
		{"a file from Windows", strings.Replace(EditorLine, "\n", "\r\n", 1), "", Schema()},
		{"after an upgrade", EditorLine, older, Schema()},
		{"a file without the line", "upstreams: {}\n", older, older},
		{"a schema of somebody else", EditorLine, "{}", "{}"},
	} {
		t.Run(test.name, func(t *testing.T) {
			dir := t.TempDir()
			schema := filepath.Join(dir, "junction.schema.json")
			if test.before != "" {
				mustWrite(t, schema, test.before)
			}
			if err := WriteSchema(filepath.Join(dir, "config.yaml"), []byte(test.text)); err != nil {
				t.Fatal(err)
			}
			got, err := os.ReadFile(schema)
			if err != nil || string(got) != test.want {
				t.Errorf("the schema is %.60q (%v), want %.60q", got, err, test.want)
			}
			info, err := os.Stat(schema)
			if err != nil || test.want == Schema() && runtime.GOOS != "windows" && info.Mode().Perm() != 0o644 {
				t.Errorf("the schema has the mode %v (%v)", info.Mode(), err)
			}
		})
	}
}

// TestSchemaStaysWhileAFileNamesIt: two files of one folder share the schema, so that it goes with the last one.
func TestSchemaStaysWhileAFileNamesIt(t *testing.T) {
	dir := t.TempDir()
	one, two := filepath.Join(dir, "one.yaml"), filepath.Join(dir, "two.yml")
	schema := filepath.Join(dir, "junction.schema.json")
	mustWrite(t, filepath.Join(dir, "other.yaml"), "a: b\n")
	mustWrite(t, two, EditorLine)
	if err := WriteSchema(one, []byte(EditorLine)); err != nil {
		t.Fatal(err)
	}
	if RemoveSchema(one); !exists(schema) {
		t.Error("the schema is gone, and two.yml names it")
	}
	if err := os.Remove(two); err != nil {
		t.Fatal(err)
	}
	if RemoveSchema(one); exists(schema) {
		t.Error("the schema stays, and no file names it")
	}
	mustWrite(t, schema, "{}")
	if RemoveSchema(one); !exists(schema) {
		t.Error("a file of somebody else is gone")
	}
}

func exists(file string) bool {
	_, err := os.Stat(file)
	return err == nil
}
