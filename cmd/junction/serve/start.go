package serve

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"junction/auth/store"
	"junction/cmd/junction/base/config"
	"junction/cmd/junction/base/health"
	"junction/cmd/junction/base/listeners"
	"junction/cmd/junction/base/record"
	"junction/cmd/junction/base/runfile"
	"junction/upstream/pace"
	"junction/upstream/prose"
)

// This file has the start of a process while another one ends, and the start with the last good content of
// a file that does not serve.

// start opens a program. It waits for a process that is ending and has an address or a file that the program
// needs. If a service does not serve with the content of its file, it serves with the last good content.
func start(ctx context.Context, o options) (*program, error) {
	p, err := openInTurn(ctx, o, open)
	if err == nil || !o.lastGood || ctx.Err() != nil {
		return p, err
	}
	if _, mistakes := errors.AsType[config.Problems](err); mistakes || errors.Is(err, errNoGood) {
		return nil, err
	}
	o.unserved = err
	p, goodErr := openInTurn(ctx, o, open)
	if goodErr != nil { // for the same reason, perhaps; that of the file is what a person can mend
		return nil, err
	}
	return p, nil
}

// errNoGood means that a file has mistakes, and that no last good content helps.
var errNoGood = errors.New("nothing was started")

// openInTurn is open, and waits for processes that are ending. One that was ended while it started has no record:
// an address that nobody known has is tried again for a moment.
func openInTurn(ctx context.Context, o options, open func(options) (*program, error)) (*program, error) {
	began := time.Now()
	for reported := (runfile.Process{}); ; {
		before := runfile.Endings()
		p, err := open(o)
		if err == nil || !held(err) {
			return p, err
		}
		if slices.ContainsFunc(before, func(p runfile.Place) bool { return !p.Alive() }) {
			continue // it may have had what open did not get
		}
		holder, ok := endingHolder(err, o.file)
		if !ok && listeners.Unknown(err) && time.Since(began) < unknownFor && pace.Sleep(ctx, unknownFor/8, nil) {
			continue
		}
		if !ok {
			return nil, err
		}
		if limit := holder.Left(); holder.Process != reported {
			tellWaiting(o, holder, limit)
			reported = holder.Process
			if !awaitEnd(ctx, holder.Process, limit+endSlack) {
				return nil, err
			}
		} else {
			return nil, err // it was waited for in vain
		}
	}
}

// endSlack is how much longer than its time a process may take until its end is waited for in vain.
const endSlack = 2 * time.Second

// unknownFor is how long an address is tried that a program without a record has.
const unknownFor = 2 * time.Second

// held reports whether open has failed because another process has an address or a file.
func held(err error) bool {
	return errors.Is(err, syscall.EADDRINUSE) || errors.Is(err, store.ErrInUse) || errors.Is(err, record.ErrShared)
}

// endingHolder returns the process that is ending and has what an error of open is about.
func endingHolder(err error, file string) (runfile.Place, bool) {
	listens, _ := listeners.Holder(err)
	used, inUse := errors.AsType[*store.InUseError](err)
	path, _ := filepath.Abs(file) // "" is the demo, which shares no files
	all := runfile.Endings()
	n := slices.IndexFunc(all, func(p runfile.Place) bool {
		return listens.PID != 0 && p.Is(listens.Process) || inUse && used.PID == p.PID ||
			file != "" && p.File == path && (inUse && used.PID == 0 || errors.Is(err, record.ErrShared))
	})
	if n < 0 {
		return runfile.Place{}, false
	}
	return all[n], true
}

// tellWaiting writes a line about the process that is waited for.
func tellWaiting(o options, holder runfile.Place, limit time.Duration) {
	var c config.Log
	if now, _, err := config.LoadServing(o.file, o.getenv, false); err == nil {
		c = now.Log
	}
	log := record.NewLog(o.stderr, c)
	log.Info("waiting until another junction has ended, which has an address or a file that this one needs",
		"process", holder.PID, "url", holder.URL, "limit", limit.Round(time.Second))
	health.NewSupervisor(o.getenv, log).Waiting(limit + startLimit)
}

// startLimit is how long a supervisor waits for the start itself.
const startLimit = 90 * time.Second

// awaitEnd waits until a process has ended, and returns false if it has not within the limit.
func awaitEnd(ctx context.Context, p runfile.Process, limit time.Duration) bool {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	for p.Alive() {
		if !pace.Sleep(ctx, 50*time.Millisecond, nil) {
			return false
		}
	}
	return true
}

// checkStart returns an error if a process of a service could not replace another one: because of its file,
// a full disk, the keys of its storage, or an address that a third program has. replaced is zero if there is
// none. Otherwise it returns the upstreams that the process would leave out.
func checkStart(o options, replaced runfile.Place) ([]config.LeftOut, error) {
	c, left, warnings, err := config.LoadStarting(o.file, o.getenv)
	if problems, ok := errors.AsType[config.Problems](err); ok {
		config.PrintProblems(o.stderr, problems, warnings)
		return nil, fmt.Errorf("%s; this mistake keeps Junction from starting: correct the file, and run the same "+
			"command again", config.First(o.file, c.Rejecting(problems)))
	} else if err != nil {
		return nil, err
	}
	if list := config.Locate(o.file, o.getenv, "", obstacles(c, o)); len(list) > 0 {
		return nil, fmt.Errorf("%s; this keeps Junction from starting: correct it, and run the same command again",
			config.First(o.file, list))
	}
	if err := runfile.CanNote(o.getenv, o.file); err != nil {
		return nil, err
	}
	for key, address := range map[string]string{"listen": c.Listen, "admin": *c.Admin} {
		if address == "" {
			continue
		}
		l, err := listeners.Listen(address, key)
		if err == nil {
			l.Close()
			continue
		}
		if !errors.Is(err, syscall.EADDRINUSE) {
			return nil, err
		}
		by, ok := listeners.Holder(err)
		if !ok || !by.Ending() && !by.Is(replaced.Process) {
			return nil, err
		}
	}
	if c.Stores() { // last, because it may make the keys
		all := newCommon(o)
		all.log = record.NewLog(o.stderr, c.Log)
		if _, err := (&storage{common: all}).ring(c.Storage); err != nil {
			return nil, err
		}
	}
	return left, nil
}

// unservedBecause returns the sentence about a file whose last good content is in force.
func unservedBecause(err error) string {
	return "it does not serve: " + strings.TrimSuffix(prose.Flat(err.Error()), ".")
}
