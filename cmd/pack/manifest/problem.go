package manifest

import (
	"errors"
	"fmt"

	"junction/upstream/prose"
	"junction/upstream/shell"
	"junction/upstream/yamlread"
)

// Problem is one mistake in a manifest, or one warning.
type Problem = yamlread.Problem

// Problems are all mistakes, by file and line.
type Problems = yamlread.Problems

// bad reports a mistake at path.
func (d *decoder) bad(path, format string, args ...any) { d.Bad(path, format, args...) }

// warn reports a condition outside the file.
func (d *decoder) warn(path, format string, args ...any) {
	d.warnings = append(d.warnings, Problem{File: d.File, Line: d.Lines.At(path), Path: path,
		Text: fmt.Sprintf(format, args...)})
}

// Mistake returns the first mistake in the manifests of a pack, with file, line and remedy; "" if
// there is none. It checks neither the pack's environment nor its OpenAPI documents.
func Mistake(path string, kinds Kinds) string {
	_, err := Load(path, kinds, Options{Unresolved: true})
	if err == nil {
		return ""
	}
	problems, ok := errors.AsType[Problems](err)
	if !ok {
		return err.Error()
	}
	text := problems[0].String()
	if more := len(problems) - 1; more > 0 {
		text += fmt.Sprintf(" (and %s more; run: %s)", prose.Count(more, "mistake"),
			shell.Join("junction-pack", "check", path))
	}
	return text
}
