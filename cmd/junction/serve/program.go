package serve

import (
	"cmp"
	"context"
	"crypto/rand"
	"io"
	"os"
	"os/signal"
	"runtime"
	"syscall"

	"github.com/KimMachineGun/automemlimit/memlimit"

	"junction/cmd/junction/base/config"
	"junction/cmd/junction/ops/diagnose"
	"junction/upstream"
)

// program is a running proxy: its parts, and those of them that it uses itself.
type program struct {
	*common
	parts      parts // in the order of their opening
	place      *place
	contents   *contents
	listening  *listening
	inForce    *inForce
	recording  *recording
	membership *membership
	checks     *checks
	serving    *serving
	upstreams  *upstreams
	pages      *adminPages
}

// Run serves a configuration file, or the demo if file is "", until ctx ends or a listener fails.
// listen overrides the address of the file unless it is "".
func Run(ctx context.Context, file, listen string, stdout, stderr io.Writer) error {
	return runProxy(ctx, options{file: file, listen: listen, stdout: stdout, stderr: stderr, getenv: os.LookupEnv})
}

// runProxy opens a program and serves until ctx ends or a listener fails.
func runProxy(ctx context.Context, o options) error {
	surviveBrokenPipes()
	// The rest is for the kernel's buffers and for commands, which are in the same container.
	// GOMEMLIMIT takes precedence.
	_, limitErr := memlimit.Set(memlimit.WithRatio(0.8))
	p, err := start(ctx, o)
	if err != nil {
		return err
	}
	defer p.close()
	p.logMemory(limitErr)
	p.logMissing()
	p.contents.logGood()
	defer runtime.KeepAlive(ballast())
	return p.serve(ctx)
}

// surviveBrokenPipes makes a write to a pipe without a reader fail, for the rest of the process, where SIGPIPE would
// end it: an interrupt may end a reader of the log, such as tee, before the stop is in the audit. The commands of
// upstreams have the default again, which they would not with signal.Ignore.
func surviveBrokenPipes() { signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE) }

// newProgram returns a program whose parts are not open.
func newProgram(o options) *program {
	all := newCommon(o)
	contents := &contents{common: all}
	certified := &certified{common: all}
	listening := &listening{common: all, certified: certified}
	pinned := &pinned{common: all}
	inForce := &inForce{common: all, contents: contents, pinned: pinned}
	recording := &recording{common: all}
	sealing := &sealing{common: all}
	revoked := &revoked{common: all, contents: contents, sealing: sealing}
	measuring := &measuring{common: all, listening: listening}
	storage := &storage{common: all, stored: make(chan struct{}, 1)}
	signIns := &signIns{common: all}
	membership := &membership{common: all}
	checks := &checks{common: all}
	serving := &serving{common: all}
	upstreams := &upstreams{common: all, refresh: make(chan struct{}, 1), recheck: make(chan struct{}, 1)}
	contents.recording, recording.revoked = recording, revoked
	listening.inForce = inForce
	inForce.listening, inForce.recording, inForce.measuring, inForce.signIns = listening, recording, measuring, signIns
	storage.recording, storage.measuring, storage.upstreams = recording, measuring, upstreams
	signIns.storage, signIns.inForce, signIns.measuring, signIns.upstreams = storage, inForce, measuring, upstreams
	signIns.revoked, signIns.others = revoked, membership
	membership.sealing, membership.storage, membership.signIns, membership.serving = sealing, storage, signIns, serving
	checks.contents, checks.listening, checks.inForce, checks.recording = contents, listening, inForce, recording
	checks.storage, checks.signIns, checks.membership = storage, signIns, membership
	checks.certified = certified
	serving.sealing, serving.listening, serving.inForce, serving.recording = sealing, listening, inForce, recording
	serving.measuring, serving.signIns, serving.membership = measuring, signIns, membership
	upstreams.sealing, upstreams.inForce, upstreams.measuring = sealing, inForce, measuring
	upstreams.signIns, upstreams.serving = signIns, serving
	signIns.identities = newIdentities(all, sealing, inForce)
	place := &place{common: all, owner: diagnose.Owner(rand.Text()), installed: newInstalled(), contents: contents,
		listening: listening, inForce: inForce}
	return &program{
		common: all, place: place, contents: contents, listening: listening, inForce: inForce, recording: recording,
		membership: membership, checks: checks, serving: serving, upstreams: upstreams,
		pages: &adminPages{common: all, place: place, contents: contents, listening: listening, inForce: inForce,
			recording: recording, measuring: measuring, signIns: signIns, membership: membership, checks: checks,
			serving: serving, upstreams: upstreams},
		parts: parts{list: []part{place, terminal{common: all}, contents, certified, listening, pinned, recording,
			sealing, revoked, measuring, storage, signIns, inForce, membership, checks, serving, upstreams}},
	}
}

// open returns a program whose configuration is in force. After an error nothing stays open.
func open(o options) (*program, error) {
	p := newProgram(o)
	if err := p.open(); err != nil {
		return nil, err
	}
	return p, nil
}

// open opens the parts, and puts the configuration in force, which starts the upstreams.
func (p *program) open() error {
	c, err := p.contents.load()
	if err != nil {
		return err
	}
	if p.file == "" {
		c.Upstreams = map[string]upstream.Config{"demo": {Command: []string{config.Self, "demo"}}}
	}
	c.Listen = cmp.Or(p.listen, c.Listen)
	err = p.parts.Open(c)
	if err == nil {
		err = p.putInForce(c)
	}
	if err == nil {
		err = p.pages.watch()
	}
	if err != nil {
		p.close()
	}
	return err
}

// putInForce prepares a configuration in all parts, and then puts it in force.
func (p *program) putInForce(c *config.Config) error {
	commit, err := p.parts.Prepare(c)
	if err == nil {
		commit()
	}
	return err
}

// close releases everything that open has opened.
func (p *program) close() { p.parts.Close() }
