// Package packs has the commands that manage packs: folders with a manifest, which junction-pack
// serves as an upstream. Package config makes the command of such an upstream.
//
// commands.go has the commands. install.go fetches a pack from a git repository (package fetch)
// into a folder beside the configuration file. manage.go lists, switches, updates and removes
// packs. Package lock has the installed packs, and package plan lists everything that a pack would
// run.
package packs

import "junction/cmd/pack"

// Trouble returns the first mistake in the manifests of a pack that is in use, with file, line and
// remedy; "" if there is none.
func Trouble(path string) string {
	mistake := pack.Mistake(path)
	if mistake == "" {
		return ""
	}
	return "the pack was not reloaded, and its last good state stays in force: " + mistake
}
