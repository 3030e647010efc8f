// Package packs is about packs as upstreams: folders with a manifest that junction-pack serves.
//
// commands.go has the commands. install.go puts a pack from a git repository (package fetch) into a
// folder beside the configuration, and manage.go lists, switches, updates and removes packs. Package
// lock has what is installed, and package plan tells what a pack would run.
package packs

import (
	"errors"
	"fmt"

	"junction/cmd/junction-pack/manifest"
	"junction/cmd/junction/prose"
)

// Trouble returns the first mistake in the manifests of a pack, with file, line and remedy; "" if
// there is none. It does not know the environment of the pack, and reads no OpenAPI documents.
func Trouble(path string) string {
	_, err := manifest.Load(path, manifest.Options{Unresolved: true})
	if err == nil {
		return ""
	}
	text := err.Error()
	if problems, ok := errors.AsType[manifest.Problems](err); ok {
		text = problems[0].String()
		if more := len(problems) - 1; more > 0 {
			text += fmt.Sprintf(" (and %s more; run: junction-pack check %s)", prose.Count(more, "mistake"), path)
		}
	}
	return "the pack was not reloaded, and its last good state stays in force: " + text
}
