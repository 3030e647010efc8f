package serve

import (
	"context"
	"crypto/sha256"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"junction/cmd/junction/base/config"
	"junction/cmd/junction/base/record"
	"junction/cmd/junction/base/runfile"
	"junction/cmd/junction/desk/service"
	"junction/upstream/files"
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
	p, err := openInTurn(ctx, options{file: file, listen: "127.0.0.1:0", stdout: io.Discard, stderr: stderr,
		getenv: os.LookupEnv, inner: true})
	if err != nil {
		return "", nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan error, 1)
	go func() { done <- p.serve(ctx) }() // ends in end
	return p.url(), func() error {
		cancel()
		defer p.close()
		return <-done
	}, nil
}

// nextAudit returns the audit for a configuration, as (*record.Trail).Next does. Several clients may start
// junction stdio with one configuration: the second one of these processes writes a file of its own beside
// the file of the first.
func (p *program) nextAudit(c config.Audit) (*record.Audit, error) {
	if p.inner && c.File == p.auditOf {
		c.File = p.auditInstead
	}
	a, err := p.audit.Next(c, p.stderr, p.log)
	given, taken := c.File, errors.Is(err, record.ErrShared)
	for n := 2; p.inner && errors.Is(err, record.ErrShared) && n <= maxInner; n++ {
		end := filepath.Ext(given)
		c.File = strings.TrimSuffix(given, end) + "." + strconv.Itoa(n) + end
		a, err = p.audit.Next(c, p.stderr, p.log)
	}
	if taken && err == nil {
		p.auditOf, p.auditInstead = given, c.File
		p.log.Warn("another process writes the audit; this one writes a file of its own", "file", c.File)
	}
	return a, err
}

// maxInner is the most processes of junction stdio that have a file for the audit of one configuration.
const maxInner = 64

// storeGood keeps the content of the file, which is in force, for a later start of the service.
func (p *program) storeGood() {
	if !p.lastGood || p.reloadError.Load() != nil {
		return
	}
	name, err := service.LastGood(p.getenv, p.file)
	if err == nil {
		err = os.MkdirAll(filepath.Dir(name), 0o700)
	}
	var text []byte
	if err == nil {
		text, err = files.Read(p.file, service.MaxGood)
	}
	if err == nil && sha256.Sum256(text) == p.hash { // otherwise a reload follows
		err = files.Write(name, text)
	}
	if err != nil {
		p.log.Warn("after a mistake in the configuration, the service will not start again", "error", err)
	}
}

// loadGood returns the last configuration that was in force, if this is a service. detail says why the
// content of the file now, with its hash, is not in force.
func (p *program) loadGood(detail string, hash [32]byte) (*config.Config, bool) {
	if !p.lastGood {
		return nil, false
	}
	text, err := service.ReadGood(p.getenv, p.file)
	if err != nil {
		return nil, false
	}
	c, err := config.ParseServing(p.file, text, p.getenv)
	if err != nil {
		return nil, false
	}
	p.readFile(hash)
	p.reloadError.Store(&detail)
	return c, true
}

// isGood reports whether the content of the file, with its hash, is the last one that was in force.
func (p *program) isGood(hash [32]byte) bool {
	text, err := service.ReadGood(p.getenv, p.file)
	return err == nil && sha256.Sum256(text) == hash
}

// logGood reports a start with the last good configuration.
func (p *program) logGood() {
	if detail := p.reloadError.Load(); detail != nil {
		p.log.Error("the configuration has mistakes; its last good content is in force", "error", *detail)
	}
}
