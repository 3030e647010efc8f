package serve

import (
	"context"
	"sync/atomic"
	"time"

	"junction/cmd/junction/base/config"
	"junction/cmd/junction/base/runfile"
	"junction/cmd/junction/ops/diagnose"
)

// place is the record of where the process serves. It is the first part to open and the last to
// close, so that the record stays until the process has given everything else back.
type place struct {
	*common
	steady
	note      atomic.Pointer[runfile.Record] // nil before the process serves
	owner     diagnose.Owner                 // of the admin address
	installed *installed
	contents  *contents
	listening *listening
	inForce   *inForce
}

// Close removes the record.
func (p *place) Close() { p.note.Load().Forget() }

// announce records where the proxy serves, for commands. The record stays until Close.
func (p *place) announce() {
	if p.contents.storeGood(); p.inner {
		return
	}
	here := runfile.Place{URL: runfile.URL(p.listening.public.Addr().String()), Public: p.inForce.now().Public(),
		Grace: longestEnd(p.inForce.now())}
	if p.listening.admin != nil {
		here.Admin = adminHere(p.listening.admin.Addr())
	}
	if mistake := p.contents.failure.Load(); mistake != nil {
		here.Mistake = *mistake
	}
	note, err := runfile.Note(p.getenv, p.file, here, string(p.owner))
	if err != nil {
		p.log.Warn("commands find this process only at the addresses of the file", "error", err)
	}
	p.note.Store(note)
	if p.served != nil {
		p.served()
	}
}

// recordEnd records that this process ends, from stopping on. The caller calls end when nothing is
// served.
func (p *place) recordEnd(stopping context.Context) (end func()) {
	stop := context.AfterFunc(stopping, func() { p.note.Load().End() })
	return func() {
		stop()
		p.note.Load().End()
	}
}

// longestEnd is how long a process with a configuration takes at most from a shutdown request to
// its end. No reload changes it.
func longestEnd(c *config.Config) time.Duration {
	return c.DrainDelay + c.ShutdownGrace + 10*time.Second
}
