package harness

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"junction/auth/authtest"
	"junction/integration/harness/process"
)

// RunJunction runs the program until it ends by itself, with further variables of the environment,
// and returns what it wrote and how it ended. Nothing of that may be a secret, but for what a
// command is asked to print (authtest.Command).
func RunJunction(t testing.TB, env []string, args ...string) (stdout, stderr string, err error) {
	t.Helper()
	return RunJunctionBy(t, nil, env, args...)
}

// RunJunctionBy is RunJunction with a launcher: the beginning of a command that becomes the program
// of its arguments.
func RunJunctionBy(t testing.TB, launcher, env []string, args ...string) (stdout, stderr string, err error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), Patience)
	defer cancel()
	var out, log bytes.Buffer
	words := slices.Concat(launcher, []string{JunctionBinary(t)}, args)
	cmd := exec.CommandContext(ctx, words[0], words[1:]...)
	cmd.Env = append(process.OwnerOf(t).Environ(os.Environ()), env...)
	cmd.Stdout, cmd.Stderr = authtest.Command(t, args, &out, &log)
	if err = cmd.Run(); ctx.Err() != nil {
		t.Fatalf("junction %s does not end (%v):\n%s%s", strings.Join(args, " "), err, &out, &log)
	}
	return out.String(), log.String(), err
}
