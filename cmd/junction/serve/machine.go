package serve

import (
	"log/slog"
	"runtime/debug"

	"junction/cmd/junction/base/config"
	"junction/upstream/sandbox"
	"junction/upstream/stdio"
)

// ballast returns memory that is never touched and therefore takes no physical memory. It raises
// the heap size at which the garbage collector runs. Without it the collector runs thirty times a
// second for the few kilobytes of garbage of each call, and a small call takes 1.2 times the CPU
// time (BenchmarkCall in integration/bench).
//
// debug.SetGCPercent(450) does the same for a small heap: private memory at rest with ten stdio
// servers is 7.8 MB with both, and the CPU time of a call 0.97 of that with the ballast. But the
// percentage counts for a large heap, too: 64 MB that are in use grow to 148 MB with the ballast, and
// to 368 MB with the percentage. It would also replace the operator's GOGC.
func ballast() []byte { return make([]byte, 16<<20) }

// logMemory logs the memory limit of the Go runtime if it lowers limits.bodies, and why that of the
// container could not be read.
func (p *program) logMemory(err error) {
	if err != nil {
		p.log.Warn("the memory limit of the container cannot be read; set GOMEMLIMIT if there is one", "error", err)
	} else if limit := debug.SetMemoryLimit(-1); limit < 4*256<<20 {
		p.log.Info("memory is limited", "limit", limit, "bodies", int64(p.inForce.now().Limits.WithDefaults().Bodies))
	}
}

// logMissing logs which protections of this machine from commands are missing.
func (p *program) logMissing() {
	logMissing(p.log, p.inForce.now(), stdio.Unwatched(), sandbox.Kernel())
}

// logMissing logs nothing if c has no command. unwatched is the result of stdio.Unwatched.
func logMissing(log *slog.Logger, c *config.Config, unwatched string, kernel sandbox.Support) {
	commands, confined := false, false
	for _, u := range c.Upstreams {
		if u.Kind().Process && !u.Off() {
			commands = true
			confined = confined || u.Sandbox != nil
		}
	}
	if commands && unwatched != "" {
		log.Warn("there is no watchdog: commands may go on running if junction is killed", "reason", unwatched)
	}
	if commands && !kernel.Enforces() && !confined { // otherwise a warning names the upstream
		log.Info("there is no sandbox on this system", "reason", kernel.Why)
	}
}
