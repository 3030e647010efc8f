package admin

import (
	"cmp"
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"junction/cmd/junction/base/cli"
	"junction/cmd/junction/base/config"
	"junction/cmd/junction/base/runfile"
	"junction/cmd/junction/ops/diagnose"
	"junction/upstream"
	"junction/upstream/prose"
	"junction/upstream/shell"
)

// ErrNotRunning means that no process listens on the admin address.
var ErrNotRunning = errors.New("no junction is running")

// errNoAdmin means that the running process has no admin address.
var errNoAdmin = errors.New("the running junction has no admin address and cannot be asked")

// startOne is what a person does if no process listens on the admin address of a file, or on that of --admin. or
// is another way; "" if there is none.
func startOne(admin, file, or string) string {
	switch {
	case admin == "" && file != "":
		return "start one: " + runfile.Start(file)
	case or != "":
		return "start one, " + or
	}
	return "start one"
}

// adminFlag registers --admin.
func adminFlag(cmd *cobra.Command, admin *string) {
	cmd.Flags().StringVar(admin, "admin", "", "admin `address` of the running proxy")
}

// checkAdmin rejects --admin together with --config.
func checkAdmin(cmd *cobra.Command, admin string) error {
	if admin != "" && cmd.Flags().Changed("config") {
		return cli.Usagef("give either --admin or --config, not both: the file names an admin address itself")
	}
	return nil
}

// adminAddress returns the admin address: that of --admin, or of the running junction that serves the
// file, or of the file, or the default. It is empty if the file disables it or uses a free port. Without
// --admin, it is an error if the junction at that address is not the user's own, as CheckOwn finds out, and
// errNoAdmin if the file disables it and a junction serves the file.
func adminAddress(ctx context.Context, flag, file string) (string, error) {
	if flag != "" {
		if u, err := url.Parse(flag); err == nil && u.Host != "" && u.Scheme == "http" {
			flag = u.Host // in the form of the log
		}
		if _, _, err := net.SplitHostPort(flag); err != nil {
			return "", cli.Usagef("--admin %q is no address; write it like 127.0.0.1:8421", flag)
		}
		return flag, nil
	}
	place, running := runfile.Present(file) // one that is ending can still be asked
	if running && place.Admin != "" {
		return place.Admin, nil
	}
	c, err := config.LoadPlaces(file)
	switch {
	case c == nil:
		return "", err
	case *c.Admin == "" && running:
		return "", fmt.Errorf("%w: set admin in %s, and restart process %d", errNoAdmin, file, place.PID)
	case strings.HasSuffix(*c.Admin, ":0") && err == nil:
		return "", nil
	case err != nil:
		return brokenAddress(ctx, file, *c.Admin)
	}
	return *c.Admin, CheckOwn(ctx, file, c, "give --admin "+*c.Admin)
}

// brokenAddress returns the admin address of a file with a mistake, if a junction that serves the file answers
// there. A process goes on with the content that it has.
func brokenAddress(ctx context.Context, file, admin string) (string, error) {
	var r diagnose.Running
	switch {
	case admin == "" || strings.HasSuffix(admin, ":0"):
		return "", notRunning(file)
	case askAdmin(ctx, admin, "/status", nil, ownLimit, &r) == nil && r.File != "" && sameFile(file, r.File):
		return admin, nil
	}
	return "", fmt.Errorf("%w (no process that serves it answers at %s)", notRunning(file), admin)
}

// CheckOwn returns an error if the junction at the admin address of a configuration is not the user's: it
// serves another file, or, if the user has no file, it runs as another user. All users of a machine have the
// same default addresses. how says what a person does who wants that junction, such as one in a container.
//
// The run files tell about the user's own junctions, and any other one is asked. A program of another user
// can give a false answer: CheckOwn finds mistakes, and is no authentication.
func CheckOwn(ctx context.Context, file string, c *config.Config, how string) error {
	if err := ServesOther(file, *c.Admin); err != nil {
		return err
	}
	var r diagnose.Running
	if *c.Admin == "" || strings.HasSuffix(*c.Admin, ":0") ||
		askAdmin(ctx, *c.Admin, "/status", nil, ownLimit, &r) != nil {
		return nil // the command itself reports a failure
	}
	if file == "" {
		if r.User == runfile.User() {
			return nil
		}
	} else if sameFile(file, r.File) {
		return nil // also that of a service, which runs as another user
	}
	own, with, serves := "", "", "the demo"
	if file != "" {
		own, with = fmt.Sprintf(", or set listen and admin in %s to other addresses", file), " with "+file
		if _, err := os.Stat(file); errors.Is(err, fs.ErrNotExist) {
			own = fmt.Sprintf(", or make %s with other addresses in listen and admin", file)
		}
	}
	if r.File != "" {
		serves = r.File
	}
	held := fmt.Sprintf("the one at %s (process %d of the user %s) serves %s", *c.Admin, r.PID,
		prose.Quote(cmp.Or(r.User, "?")), prose.Flat(serves))
	return otherError{with, held, how + own}
}

// otherError means that a junction of another file, or of another user, has the admin address of a file.
type otherError struct{ with, held, how string }

func (e otherError) Error() string {
	return fmt.Sprintf("%v%s; %s: to use that one, %s", ErrNotRunning, e.with, e.held, e.how)
}

func (e otherError) Unwrap() error { return ErrNotRunning }

// Held returns the clause about the junction that an error of CheckOwn is about, without a remedy; "" for another
// error.
func Held(err error) string {
	e, _ := errors.AsType[otherError](err)
	return e.held
}

// Whose returns the sentence about the junction at the admin address of a configuration, for a person without a
// configuration file: it may serve the file of another person or of another home folder. "" if nothing answers, or if
// it has no file either.
func Whose(ctx context.Context, c *config.Config) string {
	var r diagnose.Running
	if *c.Admin == "" || askAdmin(ctx, *c.Admin, "/status", nil, ownLimit, &r) != nil {
		return ""
	}
	return whose(&r)
}

func whose(r *diagnose.Running) string {
	if r.File == "" {
		return ""
	}
	return fmt.Sprintf("You have no configuration file. This is the Junction of %s (process %d of the user %s).",
		prose.Flat(prose.Tilde(r.File)), r.PID, prose.Quote(cmp.Or(r.User, "?")))
}

// ownLimit is how long CheckOwn waits.
const ownLimit = 3 * time.Second

// sameFile reports whether two paths lead to one file. The second one is absolute, perhaps in a container.
func sameFile(file, served string) bool {
	if abs, err := filepath.Abs(file); err == nil && abs == served {
		return true
	}
	own, err := os.Stat(file)
	is, wrong := os.Stat(served)
	return err == nil && wrong == nil && os.SameFile(own, is)
}

// ServesOther returns an error if the junction that listens on an address of the file serves another
// file: its answers would not be about this one.
func ServesOther(file, address string) error {
	p, ok := runfile.At(address)
	if !ok || file == "" {
		return nil
	}
	if sameFile(file, p.File) { // by another path
		return nil
	}
	with, use := "the demo", "stop it"
	if p.File != "" {
		with, use = p.File, "use --config "+shell.Quote(p.File)
	}
	return fmt.Errorf("%w with %s; the one at %s (process %d) serves %s: %s, or start this one: %s", ErrNotRunning,
		file, address, p.PID, with, use, runfile.Start(file))
}

// AwaitReload waits until the running junction that serves a file has read it with its present
// content, which another command may change meanwhile, or until ctx ends. The answer tells whether the content is in
// force.
func AwaitReload(ctx context.Context, file string) (*diagnose.Running, error) {
	place, ok := ServedAt(ctx, file)
	if !ok || place.Admin == "" {
		return nil, ErrNotRunning
	}
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		var r diagnose.Running
		if err := askAdmin(ctx, place.Admin, "/status", nil, diagnose.Patience, &r); err != nil {
			return nil, err
		}
		if sum, err := config.Checksum(file); err != nil {
			return nil, err
		} else if r.Read == hex.EncodeToString(sum[:]) {
			return &r, nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// AwaitRevoked waits until the running junction that serves a file has read it, and returns an error
// if it still accepts one of the keys, or if that cannot be found out. running is false if no junction
// serves the file on this machine. unfollowed has sentences about what of the file is not in force, and where.
func AwaitRevoked(ctx context.Context, file string, hashes []string) (running bool, unfollowed []string, err error) {
	place, running := ServedAt(ctx, file)
	if !running {
		return false, nil, nil
	}
	restart := fmt.Sprintf("restart the running junction (process %d)", place.PID)
	if place.Admin == "" {
		return true, nil, fmt.Errorf("the running junction cannot be asked whether it still accepts the key, because "+
			"admin is off; look for \"configuration reloaded\" in its log, or %s", restart)
	}
	r, keys, err := acceptedKeys(ctx, file, place.Admin, hashes...)
	if err != nil {
		return true, nil, fmt.Errorf("the running junction may still accept the key: %w; %s", err, restart)
	}
	for _, k := range keys {
		if slices.Contains(hashes, k.Hash) {
			return true, nil, fmt.Errorf("the running junction still accepts the key: %s; correct the file, or %s",
				prose.Flat(cmp.Or(r.Reload, "another entry of the file has it")), restart)
		}
	}
	if unfollowed = r.Unfollowed(); r.Gone == "" && r.Reload != "" && r.Partial == nil {
		unfollowed = []string{"The rest of the changed file is not in force. Correct it: " + prose.Flat(r.Reload)}
	}
	if n := len(r.Replicas); n > 1 {
		unfollowed = append(unfollowed, fmt.Sprintf("It is one of %d processes. Each of the others accepts the key "+
			"until its own file lacks it.", n))
	}
	return true, unfollowed, nil
}

// AwaitAdded waits until the running junction that serves a file has read it, and returns a sentence about
// whether it accepts the key that a command has added.
func AwaitAdded(ctx context.Context, file, hash string) string {
	place, running := ServedAt(ctx, file)
	switch {
	case !running:
		return Elsewhere
	case place.Admin == "":
		return "The running junction cannot be asked whether it accepts the key, because admin is off; look for " +
			"\"configuration reloaded\" in its log."
	}
	r, keys, err := acceptedKeys(ctx, file, place.Admin, hash)
	switch {
	case err != nil:
		return fmt.Sprintf("The running junction may not accept the key yet: %s. Ask it with: %s",
			strings.TrimSuffix(prose.Flat(err.Error()), "."), config.Command(file, "status"))
	case slices.ContainsFunc(keys, func(k diagnose.Key) bool { return k.Hash == hash }):
		return "The running junction accepts it."
	}
	return fmt.Sprintf("The running junction does not accept it yet: %s.",
		strings.TrimSuffix(prose.Flat(cmp.Or(r.Reload, "its file waits for a restart")), "."))
}

// Elsewhere is the sentence about a change that no junction on this machine has to apply.
const Elsewhere = "No junction on this machine serves the file. A junction on another machine applies the " +
	"change when its copy of the file changes."

// acceptedKeys waits until the running junction has read the file, and returns its state and those of its keys that
// have one of the hashes. It returns others, too, if this user runs the junction.
func acceptedKeys(ctx context.Context, file, admin string, hashes ...string) (*diagnose.Running, []diagnose.Key,
	error) {
	ctx, cancel := context.WithTimeoutCause(ctx, reloadLimit,
		fmt.Errorf("it has not read the file within %v", reloadLimit))
	defer cancel()
	r, err := AwaitReload(ctx, file)
	var keys []diagnose.Key
	if err == nil {
		err = askAdmin(ctx, admin, "/keys", url.Values{"hash": hashes}, diagnose.Patience, &keys)
	}
	if err != nil && ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	return r, keys, err
}

// EndRevoked has the running junction that serves a file look for what a command has revoked in the
// database, and returns a sentence that says where the change is in force.
func EndRevoked(ctx context.Context, file string) string {
	const later = "applies the change within ten seconds"
	place, running := ServedAt(ctx, file)
	var done diagnose.Revoked
	var err error
	switch {
	case !running:
		return "No junction on this machine serves the file. A junction on another machine " + later + "."
	case place.Admin == "":
		err = errors.New("admin is off")
	default:
		err = adminRequest{method: http.MethodPost, path: "/revoked", owner: true}.send(ctx, place.Admin,
			diagnose.Patience, &done)
	}
	switch n := len(done.Missed); {
	case err != nil:
		return fmt.Sprintf("The running junction %s. It cannot be told at once: %s.", later,
			strings.TrimSuffix(prose.Flat(err.Error()), "."))
	case n > 0:
		return fmt.Sprintf("The running junction has applied the change. The process at %s does not answer, and %s.",
			strings.Join(done.Missed, ", "), later)
	}
	return "The running junction has applied the change."
}

// reloadLimit is how long a command waits until the running junction has read a changed file.
const reloadLimit = 10 * time.Second

// AwaitTried waits until the running junction that serves a file has tried the named upstreams, for
// the limit at most. It returns those of them that are enabled; nil if no junction answers.
func AwaitTried(ctx context.Context, file string, names []string, limit time.Duration) []diagnose.UpstreamStatus {
	if len(names) == 0 {
		return nil
	}
	place, ok := ServedAt(ctx, file)
	if !ok || place.Admin == "" {
		return nil
	}
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	end := time.Now().Add(limit)
	for {
		var r diagnose.Running
		if askAdmin(ctx, place.Admin, "/status", nil, diagnose.Patience, &r) != nil {
			return nil
		}
		r.Upstreams = slices.DeleteFunc(r.Upstreams,
			func(u diagnose.UpstreamStatus) bool { return !slices.Contains(names, u.Name) })
		starts := func(u diagnose.UpstreamStatus) bool { return u.State == upstream.StateStarting.String() }
		if !slices.ContainsFunc(r.Upstreams, starts) || time.Now().After(end) {
			return r.Upstreams
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return r.Upstreams
		}
	}
}

// States returns the state of each upstream of the running junction that serves a file. It returns nil
// if no junction runs, or if it does not answer.
func States(ctx context.Context, file string) map[string]string {
	r := Running(ctx, file)
	if r == nil {
		return nil
	}
	states := map[string]string{}
	for _, u := range r.Upstreams {
		states[u.Name] = u.State
	}
	return states
}

// Runs returns a function that tells whether the running junction that serves a file runs an upstream, whose
// entry has no mistake then, and whether the upstream works. It waits until the junction has read the file, for
// the limit at most, and returns nil if none answers.
func Runs(ctx context.Context, file string, limit time.Duration) func(upstream string) (runs, works bool) {
	limited, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	r, err := AwaitReload(limited, file)
	if err != nil {
		r = Running(ctx, file)
	}
	if r == nil {
		return nil
	}
	return func(upstream string) (runs, works bool) {
		n := slices.IndexFunc(r.Upstreams, func(u diagnose.UpstreamStatus) bool { return u.Name == upstream })
		if n < 0 || r.Upstreams[n].Invalid {
			return false, false
		}
		return true, r.Upstreams[n].Need() == diagnose.NeedsNothing
	}
}

// Running returns the status of the running junction that serves a file; nil if none answers.
func Running(ctx context.Context, file string) *diagnose.Running {
	var r diagnose.Running
	place, ok := ServedAt(ctx, file)
	if !ok || place.Admin == "" || askAdmin(ctx, place.Admin, "/status", nil, diagnose.Patience, &r) != nil {
		return nil
	}
	return &r
}

// askAdmin reads the answer of the admin address at a path. The error is ErrNotRunning if no process
// listens there; otherwise it contains the error text of the proxy. The answer names people only to the owner.
func askAdmin(ctx context.Context, address, path string, query url.Values, limit time.Duration, into any) error {
	return adminRequest{path: path, query: query, owner: true}.send(ctx, address, limit, into)
}

// adminRequest is a request to the admin address.
type adminRequest struct {
	method string // "" is GET
	path   string
	query  url.Values
	owner  bool // it has the secret of the user who runs the proxy, if this user can read it
}

// send reads the answer of the admin address into a value of JSON. Its errors come from askAdmin.
func (q adminRequest) send(ctx context.Context, address string, limit time.Duration, into any) error {
	ctx, cancel := context.WithTimeoutCause(ctx, limit,
		fmt.Errorf("the proxy at %s has not answered within %v", address, limit))
	defer cancel()
	status, text, err := q.answer(ctx, address)
	switch {
	case err != nil:
		return err
	case status == http.StatusNotFound && strings.HasPrefix(string(text), "404 "):
		return fmt.Errorf("the server at %s is not the admin address of a junction of this version", address)
	case status != http.StatusOK:
		return errors.New(prose.Cut(prose.Flat(string(text)), 400))
	}
	if err := json.Unmarshal(text, into); err != nil {
		return fmt.Errorf("the server at %s is not the admin address of a junction", address)
	}
	return nil
}

// answer sends the request to the admin address. The error is ErrNotRunning if no process listens
// there, and the cause of ctx if that has ended.
func (q adminRequest) answer(ctx context.Context, address string) (status int, text []byte, err error) {
	u := url.URL{Scheme: "http", Host: address, Path: q.path, RawQuery: q.query.Encode()}
	r, err := http.NewRequestWithContext(ctx, q.method, u.String(), nil)
	if err != nil {
		return 0, nil, err
	}
	if secret := runfile.Secret(address); q.owner && secret != "" {
		r.Header.Set(diagnose.OwnerHeader, secret)
	}
	client := http.Client{Transport: &http.Transport{Proxy: nil, DisableKeepAlives: true}}
	resp, err := client.Do(r)
	if err == nil {
		defer resp.Body.Close()
		status = resp.StatusCode
		text, err = io.ReadAll(io.LimitReader(resp.Body, 64<<20))
	}
	switch {
	case err == nil:
		return status, text, nil
	case ctx.Err() != nil:
		return 0, nil, context.Cause(ctx)
	case errors.Is(err, syscall.ECONNREFUSED):
		return 0, nil, fmt.Errorf("%w at %s", ErrNotRunning, address)
	}
	if wrapped, ok := errors.AsType[*url.Error](err); ok {
		err = wrapped.Err
	}
	return 0, nil, fmt.Errorf("ask the proxy at %s: %w", address, err)
}
