package serve

import (
	"context"
	"errors"
	"io"
	"os"

	"junction/cmd/junction/base/config"
	"junction/cmd/junction/base/runfile"
	"junction/cmd/junction/desk/service"
)

// This file has the two other ways to serve than the command junction: as a service, which starts also
// with a mistake in its file, and for one client of junction stdio.

// Services is what package service needs of this one.
func Services() service.Proxy {
	return service.Proxy{
		Serve: func(ctx context.Context, s service.Start) error {
			o := options{file: s.File, stdout: s.Stdout, stderr: s.Stderr, getenv: os.LookupEnv, lastGood: true,
				served: s.Served}
			if s.Crashed != "" {
				o.unserved = errors.New(s.Crashed)
			}
			return runProxy(ctx, o)
		},
		Check: func(file string, stderr io.Writer, replaced runfile.Place) ([]config.LeftOut, error) {
			return checkStart(options{file: file, stdout: io.Discard, stderr: stderr, getenv: os.LookupEnv}, replaced)
		},
	}
}

// Own serves a file for this process alone, on a port that no other command finds, unless a
// running junction serves the file: then the URL is "". end must be called if err is nil.
func Own(ctx context.Context, file string, stderr io.Writer) (url string, end func() error, err error) {
	if _, running := runfile.Find(file); running {
		return "", func() error { return nil }, nil
	}
	surviveBrokenPipes()
	p, err := openInTurn(ctx, options{file: file, listen: "127.0.0.1:0", stdout: io.Discard, stderr: stderr,
		getenv: os.LookupEnv, inner: true}, open)
	if err != nil {
		return "", nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan error, 1)
	go func() { done <- p.serve(ctx) }() // ends in end
	return p.listening.url(), func() error {
		cancel()
		defer p.close()
		return <-done
	}, nil
}
