// Package packs is about packs as upstreams: folders with a manifest that junction-pack serves.
//
// commands.go has the commands. install.go puts a pack from a git repository (package fetch) into a
// folder beside the configuration, and manage.go lists, switches, updates and removes packs. Package
// lock has what is installed, and package plan tells what a pack would run.
package packs

import "junction/cmd/junction-pack/manifest"

// Trouble returns the first mistake in the manifests of a pack that is in use, with file, line and
// remedy; "" if there is none.
func Trouble(path string) string {
	mistake := manifest.Mistake(path)
	if mistake == "" {
		return ""
	}
	return "the pack was not reloaded, and its last good state stays in force: " + mistake
}
