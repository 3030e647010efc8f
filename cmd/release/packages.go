package main

import (
	"context"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"
)

// packages runs the program in .ci/packages of the clone, which makes deb, rpm and images of the archives
// for Linux. It asks a program of this machine for the manual page and the completions.
func (r *release) packages(ctx context.Context, from, base string, built []platform) error {
	if !slices.ContainsFunc(built, func(p platform) bool { return p.os == "linux" }) {
		return nil
	}
	scratch, err := os.MkdirTemp("", "junction-build-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(scratch)
	program, _, err := r.program(ctx, platform{os: runtime.GOOS, arch: runtime.GOARCH}, "junction", scratch)
	if err != nil {
		return err
	}
	// The program runs in another folder, so that the name of a folder becomes absolute.
	if folder, digest, ok := strings.Cut(base, "@"); ok {
		if info, err := os.Stat(folder); err == nil && info.IsDir() {
			if folder, err = filepath.Abs(folder); err != nil {
				return err
			}
			base = folder + "@" + digest
		}
	}
	if _, err := command(ctx, filepath.Join(r.source, ".ci", "packages"), []string{"GOFLAGS=", "GOWORK=off"},
		"go", "run", ".", "-o", r.dir, "-version", r.version, "-url", from, "-date", r.date.Format(time.RFC3339),
		"-junction", program, "-base", base); err != nil {
		return err
	}
	entries, err := os.ReadDir(r.dir)
	if err != nil {
		return err
	}
	for _, entry := range entries {
		if _, ok := r.sums[entry.Name()]; ok {
			continue
		}
		text, err := os.ReadFile(filepath.Join(r.dir, entry.Name()))
		if err != nil {
			return err
		}
		if err := r.wrote(entry.Name(), text); err != nil {
			return err
		}
	}
	return nil
}
