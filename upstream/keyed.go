package upstream

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"junction/upstream/client"
	"junction/upstream/command"
	"junction/upstream/stdio"
)

// This file is about a command that gets the key of its caller in its environment: each caller has a process of
// their own, and another key means another process.

// KeyWord stands in the environment of a command for the key of the caller (Mode.Given).
const KeyWord = "${user.key}"

// keyed reports whether the processes of the entry have the keys of their callers.
func (c *Config) keyed() bool { return c.Auth.Mode.Row().Given && c.Kind().Process }

// KeyVariables returns the sorted names of the variables that have the key of the caller.
func (c *Config) KeyVariables() (names []string) {
	for _, name := range slices.Sorted(maps.Keys(c.Env)) {
		if strings.Contains(c.Env[name], KeyWord) {
			names = append(names, name)
		}
	}
	return names
}

// withKey returns an environment with a key in place of KeyWord.
func withKey(env map[string]string, key string) map[string]string {
	own := make(map[string]string, len(env))
	for name, value := range env {
		own[name] = strings.ReplaceAll(value, KeyWord, key)
	}
	return own
}

// validateKeyed reports KeyWord where no key belongs, and a command that would not get the key.
func (c *Config) validateKeyed(bad func(path, format string, args ...any)) {
	variables := c.KeyVariables()
	for _, name := range variables {
		switch at := "env." + name; {
		case !c.Auth.Mode.Row().Given:
			bad(at, "%s is the key of the caller; set auth: { mode: %s }", KeyWord, givenMode())
		case command.Decides(name):
			bad(at, "must not depend on a key, which a user chooses, because it decides which programs run; write a "+
				"fixed value")
		}
	}
	switch {
	case !c.keyed():
		return
	case len(variables) == 0:
		bad("env", `has no %s, so that the command would not get the key; write a variable, such as API_KEY: "%[1]s"`,
			KeyWord)
	}
	for _, key := range c.Auth.keys() {
		bad("auth."+key, "is only for a server at a URL: a command gets the key in env; remove it")
	}
	if c.Isolation == IsolationFolder {
		bad("isolation", "folder does not go with a key of each caller (auth.mode); write principal or session")
	}
}

// givenMode returns the word of the mode in which callers give keys.
func givenMode() AuthMode {
	i := slices.IndexFunc(modes, func(row Mode) bool { return row.Given })
	return modes[i].Word
}

// wrongKey returns the error of an attempt to connect. If the process has ended by itself, it is a SignInError: the
// key may be wrong, and for a while no process starts with it.
func (l *link) wrongKey(ctx context.Context, err error) error {
	p := l.pool
	exit, ended := errors.AsType[*stdio.ExitError](err)
	if !ended || exit.Killed || !p.connConfig.keyed() {
		return err
	}
	_, refused := p.token(ctx, l.dialed, l.dialed)
	need, ok := errors.AsType[*SignInError](refused)
	if !ok {
		return err
	}
	p.log.Warn("the process of a user ended at its start; the user is asked for another key", "error", p.shown(err))
	again := *need
	again.Reason = fmt.Sprintf("the program of %s ended at its start with your key (%s)", p.name, exit.How)
	return &again
}

// givenAnother starts the upstream of the user again, because there is another key than the one of a connection.
// The tokens of a sign-in change without a change of the account.
func (p *pool) givenAnother() {
	if p.options.renew != nil && p.connConfig.Auth.Mode.Row().Given {
		p.options.renew(p.user, p.name, p)
	}
}

// Current reports whether the key of the user is still that of the last request. If there is another key, or none, the
// upstream of the user starts again. Current returns true in modes in which users give no keys, and false if the
// storage, which it reads, does not answer.
func (p *pool) Current(ctx context.Context) bool {
	if p.user == "" || !p.connConfig.Auth.Mode.Row().Given {
		return true
	}
	before := p.given.Load()
	token, err := p.token(ctx)
	if err == nil && before != nil && *before == token {
		return true
	}
	if err == nil || signIn(err) {
		p.givenAnother()
	}
	return false
}

// seats bounds the processes that the users of a command have together: max_links, and half of them for one user. A
// process that is not used makes room for that of another user; its tools stay listed. Nil has no bound.
type seats struct {
	mu    sync.Mutex
	taken map[*link]bool
	freed chan struct{} // closed when a seat, or a link, may have become free; nil while nobody waits
}

// takeSeat takes a seat for the process of a link, until free. It waits for one until ctx ends. A user without a key
// takes none.
func (p *pool) takeSeat(ctx context.Context, l *link) error {
	s := p.options.seats
	if s == nil || !p.connConfig.keyed() {
		return nil
	}
	if _, err := p.token(ctx); err != nil {
		return err
	}
	for {
		spare, freed := s.take(l)
		if freed == nil {
			return nil
		}
		if spare != nil && spare.retire() {
			spare.pool.evictions.Add(1)
			spare.stop(errIdle)
		}
		select {
		case <-freed:
		case <-ctx.Done():
			return &Error{p.name, client.KindBusy, fmt.Errorf("the limit of processes (max_links: %d), or of "+
				"one user (half of it), is reached", p.connConfig.MaxLinks)}
		}
	}
}

// take takes a seat, and returns nil. If there is none, it returns a channel that is closed when there may be one,
// and the link that has been unused for the longest time; nil if all are in use.
func (s *seats) take(l *link) (spare *link, freed <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	own := 0
	for other := range s.taken {
		if other.pool == l.pool {
			own++
		}
	}
	full := own >= l.pool.share()
	if len(s.taken) < l.pool.connConfig.MaxLinks && !full {
		if s.taken == nil {
			s.taken = map[*link]bool{}
		}
		s.taken[l] = true
		return nil, nil
	}
	var used int64
	for other := range s.taken {
		if full && other.pool != l.pool {
			continue
		}
		other.mu.Lock()
		if at := other.used.UnixNano(); other.calls == 0 && other.conn != nil && (spare == nil || at < used) {
			spare, used = other, at
		}
		other.mu.Unlock()
	}
	if s.freed == nil {
		s.freed = make(chan struct{})
	}
	return spare, s.freed
}

// free frees the seat of a link, if it has one.
func (s *seats) free(l *link) {
	if s == nil {
		return
	}
	s.mu.Lock()
	delete(s.taken, l)
	s.mu.Unlock()
	s.wake()
}

// wake has the links that wait look again.
func (s *seats) wake() {
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.freed != nil {
		close(s.freed)
		s.freed = nil
	}
}
