package config

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"junction/upstream/files"
)

// The schema for editors lies beside the configuration file, under a relative name: an editor finds it without
// a network, also in a folder that was moved or that is mounted into a container, and it is the schema of the
// program that wrote the file. The state directory is the program's own, and other users of a shared file
// have another one.
const (
	schemaName = "junction.schema.json"
	// EditorLine is the first line of a new file. Language servers for YAML read it.
	EditorLine = "# yaml-language-server: $schema=" + schemaName + "\n"
)

// schemaTitle is in each schema of Junction, of any version.
const schemaTitle = `"title": "The configuration file of Junction"`

// WriteSchema writes the schema that a configuration file names in its EditorLine, or replaces that of
// another version. It does nothing for a file without the line, and leaves a file alone that is no
// schema of Junction. Everybody may read the schema.
func WriteSchema(file string, text []byte) error {
	if !NamesSchema(text) {
		return nil
	}
	name := filepath.Join(filepath.Dir(file), schemaName)
	switch have, err := files.Read(name, maxSchema); {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil || string(have) == schema || !isSchema(have): // it is there, or it is somebody else's
		return nil
	}
	if err := files.Write(name, []byte(schema)); err != nil {
		return files.Reason(err)
	}
	return os.Chmod(name, 0o644)
}

// RemoveSchema removes the schema beside a configuration file unless a configuration there names it. Errors
// are ignored: the schema does no harm.
func RemoveSchema(file string) {
	name := filepath.Join(filepath.Dir(file), schemaName)
	if have, err := files.Read(name, maxSchema); err != nil || !isSchema(have) {
		return
	}
	list, err := os.ReadDir(filepath.Dir(file))
	if err != nil {
		return
	}
	for _, f := range list {
		if ext := filepath.Ext(f.Name()); ext != ".yaml" && ext != ".yml" {
			continue
		}
		text, err := files.Read(filepath.Join(filepath.Dir(file), f.Name()), maxFile)
		if err != nil || NamesSchema(text) {
			return
		}
	}
	_ = os.Remove(name)
}

// maxSchema bounds the schemas that are read, in bytes.
const maxSchema = 1 << 20

// NamesSchema reports whether a configuration file has the EditorLine.
func NamesSchema(text []byte) bool {
	return bytes.Contains(text, []byte(strings.TrimSpace(EditorLine)))
}

func isSchema(text []byte) bool { return bytes.Contains(text, []byte(schemaTitle)) }
