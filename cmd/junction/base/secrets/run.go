package secrets

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"junction/upstream/prose"
	"junction/upstream/stdio"
)

const (
	limit     = 30 * time.Second // of one run
	mostBytes = 64 << 10         // of the output
)

// byHand is how the operator finds out what a program says about its failure.
const byHand = "; run it by hand, as the user of Junction, to see why"

// run runs a program, without a shell and without input, and returns its output without the line breaks at the end.
// The errors have no part of the output, and nothing of standard error: a script may trace its secret there, and
// callers of the upstream read the reason of a failure, too.
func run(ctx context.Context, p Program) (string, error) { return runWithin(ctx, p, limit) }

// runWithin is run with another limit.
func runWithin(ctx context.Context, p Program, limit time.Duration) (string, error) {
	late := fmt.Errorf("the program %s did not end within %v, and was ended; run it by hand, without a terminal, to "+
		"see what it waits for", base(p.Command), limit)
	ctx, cancel := context.WithTimeoutCause(ctx, limit, late)
	defer cancel()
	r, err := stdio.Run(ctx, stdio.Options{Command: p.Command, StopGrace: time.Second,
		Env: stdio.Environment{Inherit: p.Exec.InheritEnv}}, nil, mostBytes)
	switch {
	case errors.Is(err, late):
		return "", late
	case errors.Is(err, stdio.ErrNoProgram):
		return "", fmt.Errorf("there is no program %s in PATH; install it, or write its absolute path", base(p.Command))
	case err != nil:
		return "", fmt.Errorf("the program %s cannot run: %w", base(p.Command), err)
	case r.Exceeded:
		return "", fmt.Errorf("the program %s printed more than %d KiB, which is no secret", base(p.Command),
			mostBytes>>10)
	case r.Code != 0:
		return "", fmt.Errorf("the program %s %s%s", base(p.Command), r.How, byHand)
	}
	text := bytes.TrimRight(r.Output, "\r\n")
	switch {
	case len(text) == 0:
		return "", fmt.Errorf("the program %s printed nothing%s", base(p.Command), byHand)
	case bytes.IndexByte(text, 0) >= 0:
		return "", fmt.Errorf("the program %s printed a NUL byte, which no secret has", base(p.Command))
	}
	return string(text), nil
}

// base returns the program of a command, without its arguments.
func base(command []string) string { return prose.OneLine(filepath.Base(command[0])) }
