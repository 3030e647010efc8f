package service

import (
	"context"
	"fmt"

	"junction/cmd/junction/base/runfile"
	"junction/cmd/junction/ops/admin"
)

// This file is about a junction that serves the file, and whose run file is not one of this user: that of
// another user, or of another folder for state. It has named itself, so that no process is ended because of it.

// notOfOther returns an error if such a junction serves a file. It waits until no start is in progress: a process
// listens a moment before its run file is there.
func (h *Host) notOfOther(ctx context.Context, file string) error {
	end, err := h.turn(ctx, file)
	if err != nil {
		return err
	}
	defer end()
	return ofOther(ctx, file)
}

// ofOther is notOfOther for a caller that has the turn.
func ofOther(ctx context.Context, file string) error {
	served, serves := admin.ServedAt(ctx, file)
	switch {
	case !serves || !served.Other():
		return nil
	case served.User == runfile.User():
		return fmt.Errorf("%s serves %s, and has another folder for state (XDG_STATE_HOME): run the command in its "+
			"environment, or use the service manager that has started it", served.Process(), file)
	}
	return fmt.Errorf("%s serves %s: run the command as that user, or use the service manager that has started it",
		served.Process(), file)
}
