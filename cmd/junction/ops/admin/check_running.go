package admin

import (
	"context"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"junction/cmd/junction/base/config"
	"junction/cmd/junction/base/runfile"
	"junction/cmd/junction/ops/diagnose"
	"junction/upstream/prose"
)

// This file has what junction check reads of the running junction and of its service.

// Serving returns the state of the junction of this machine that serves a file; nil if there is none, or if it
// does not answer.
func Serving(ctx context.Context, file string) *diagnose.Running {
	place, running := ServedAt(ctx, file)
	var r diagnose.Running
	if !running || place.Admin == "" || askAdmin(ctx, place.Admin, "/status", nil, ownLimit, &r) != nil {
		return nil
	}
	return &r
}

// asService sets the variables of the service of a file in this process. The note says so. If there is a service,
// also without variables, mistakes name the file for them.
func asService(ctx context.Context, file string) (note string, err error) {
	path, err := filepath.Abs(file)
	if err != nil {
		return "", err
	}
	service, err := config.UseEnvironment(path)
	if err != nil || service != "" {
		return "the variables of " + prose.Tilde(service) + " count, as for the service, and then those of this shell",
			err
	}
	if _, background := runfile.LastBackground(path); background {
		service = config.EnvironmentOf(path)
	} else if r := Serving(ctx, file); r != nil {
		service = r.Variables
	}
	if service == "" {
		return "", nil
	}
	return "", os.Setenv(config.ServiceVariables, service)
}

// revived returns the warnings of the running junction about revoked API keys that are in a file again. ok is false
// if no junction has read this content of the file.
func revived(r *diagnose.Running, file string) (list config.Problems, ok bool) {
	sum, err := config.Checksum(file)
	if r == nil || err != nil || r.Read != hex.EncodeToString(sum[:]) {
		return nil, false
	}
	for _, w := range r.Warnings {
		if config.Revived(w) {
			list = append(list, w)
		}
	}
	return list, true
}

// listsOf returns the lists of the running junction that serves a file. Without them, why says so.
func listsOf(ctx context.Context, file string) (lists diagnose.Lists, why string) {
	place, running := ServedAt(ctx, file)
	switch {
	case !running:
		return nil, "no running Junction serves " + prose.Tilde(file)
	case place.Admin == "":
		return nil, "the running Junction cannot be asked, because admin is off"
	}
	ask := adminRequest{path: "/lists", owner: true}
	if err := ask.send(ctx, place.Admin, diagnose.Patience, &lists); err != nil {
		return nil, strings.TrimSuffix(prose.Flat(err.Error()), ".")
	}
	return lists, ""
}

// addAccess adds to a change what it means for the holders of API keys. unlisted is why there are no lists.
func addAccess(change *config.Change, lists diagnose.Lists, unlisted string) {
	change.Unlisted = unlisted
	if lists == nil {
		return
	}
	var err error
	if change.Access, change.Unknown, err = lists.Accesses(change.Before(), change.Config); err != nil {
		change.Unlisted = fmt.Sprintf("the policies have a mistake: %v", err)
		return
	}
	change.Listed = true
}
