package diagnose

import (
	"cmp"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"junction/cmd/junction/base/config"
	"junction/upstream"
	"junction/upstream/client"
	"junction/upstream/prose"
	"junction/upstream/shell"
)

// This file has the states of upstreams, as all commands and pages show them.

// PerUser is the state of an upstream to which each user has connections of their own. The other
// states are those of upstream.State.
const PerUser = "per user"

// UpstreamStatus is the state of one upstream.
type UpstreamStatus struct {
	Name    string    `json:"name"`
	State   string    `json:"state"`
	Since   time.Time `json:"since,omitzero"`    // when State began
	RetryAt time.Time `json:"retry_at,omitzero"` // the next attempt, or ping; absent if it is in progress, or none is due
	Error   string    `json:"error,omitempty"`
	Advice  string    `json:"advice,omitempty"` // the remedy for Error
	Note    string    `json:"note,omitempty"`   // why a start may take long
	Era     string    `json:"era,omitempty"`
	Version string    `json:"version,omitempty"`
	Tools   int       `json:"tools"`            // on the merged endpoint
	Listed  int       `json:"listed"`           // tools that the server lists, also those that are not offered
	Skills  int       `json:"skills,omitempty"` // on the merged endpoint
	// the tools are from an earlier run, because the server has not listed any yet
	Stored bool `json:"stored,omitempty"`
	Links  int  `json:"links"`
	// links over which the server does not work: see upstream.StateDegraded
	Degraded int `json:"degraded,omitempty"`
	// the first connections of callers that do not work, and the number of the others; only in the answer of /status
	Stuck     []StuckConnection `json:"stuck,omitempty"`
	MoreStuck int               `json:"more_stuck,omitempty"`
	Sandbox   string            `json:"sandbox,omitempty"` // of a command: "enforced", or the part that is not, with the reason

	Processes int              `json:"processes,omitempty"`    // number of processes of a command
	Running   []CommandProcess `json:"running,omitempty"`      // the latest first; only in the answer of /status
	Memory    int64            `json:"memory_bytes,omitempty"` // with their children; only in the answer of /status
	Calls     int              `json:"calls,omitempty"`        // in progress; only in the answer of /status
	Waiting   int              `json:"waiting,omitempty"`      // calls that wait for their turn; only in the answer of /status
	LastCall  *LastCall        `json:"last_call,omitempty"`    // only in the answer of /status

	Auth    string   `json:"auth,omitempty"`    // auth.mode, without none
	SignIn  bool     `json:"sign_in,omitempty"` // the operator signs in to the server: junction login
	Lacks   []string `json:"lacks,omitempty"`   // scopes that calls needed, and the sign-in does not have
	Invalid bool     `json:"invalid,omitempty"` // the entry has a mistake, so that no connection is attempted
	// where the secrets of the entry are kept, except those in variables
	Secrets []Secret `json:"secrets,omitempty"`
	// what requests have beside the credential, such as headers of the client, without values
	Sends []string `json:"sends,omitempty"`
	// it works in the folders of clients, and clients may name none: calls from a folder fail
	NoFolder bool `json:"no_folder,omitempty"`

	running []upstream.Process
	stuck   []upstream.Stuck
}

// Shown returns the state for display, such as "retrying in 20s".
func (u *UpstreamStatus) Shown(now time.Time) string { return shown(u.State, u.RetryAt, now) }

// Shown returns the state for display, such as "retrying in 20s"; "" without a running proxy.
func (u *Examined) Shown(now time.Time) string { return shown(u.State, u.RetryAt, now) }

func shown(state string, retry, now time.Time) string {
	if state != upstream.StateRetrying.String() {
		return state
	}
	if left := int(retry.Sub(now).Round(time.Second).Seconds()); left > 0 {
		return fmt.Sprintf("%s in %ds", state, left)
	}
	return state + " now"
}

// Broken reports whether a person has to look at the upstream.
func (u *UpstreamStatus) Broken() bool {
	return u.Degraded > 0 || slices.ContainsFunc(upstream.States(), func(s upstream.State) bool {
		return s.Broken() && s.String() == u.State
	})
}

// BrokenFirst returns the upstreams with the broken ones first, and otherwise in the same order.
func BrokenFirst(list []UpstreamStatus) []UpstreamStatus {
	list = slices.Clone(list)
	slices.SortStableFunc(list, func(a, b UpstreamStatus) int {
		switch broken := a.Broken(); {
		case broken == b.Broken():
			return 0
		case broken:
			return -1
		}
		return 1
	})
	return list
}

func plural(n int, one, many string) string {
	if n == 1 {
		return one
	}
	return many
}

// installers are programs that download what they run.
var installers = []string{"npx", "bunx", "pnpx", "uvx", "pipx", "docker", "podman", "deno"}

// note returns why the first start of an upstream may take long; "" if this is no first start, or
// if the start has not taken long yet. A process that has ended is the better reason.
func note(s *upstream.Status, program string) string {
	if s.Exited != "" { // nothing is downloaded any more
		return s.Exited + "; starting it once more, in the legacy era"
	}
	if program == "" || s.State != upstream.StateStarting || s.Stored || s.Era != client.EraAuto ||
		time.Since(s.Since) < 2*time.Second {
		return ""
	}
	program, _, _ = strings.Cut(filepath.Base(program), ".")
	if !slices.Contains(installers, program) {
		return ""
	}
	return program + " may be downloading the package" // what it has already starts faster
}

// statusOf returns the state of a running upstream that offers a number of tools.
func (p *Proxy) statusOf(s *upstream.Status, tools int) UpstreamStatus {
	c := p.Config().Upstreams[s.Name]
	u := UpstreamStatus{
		Name: s.Name, State: s.State.String(), Since: s.Since, RetryAt: s.Retry, Error: s.Err, Advice: s.Advice,
		Era: string(s.Era), Version: s.Version, Tools: tools, Listed: s.Tools, Stored: s.Stored, Links: s.Links,
		Degraded: s.Degraded, Sandbox: s.Sandbox, Processes: len(s.Processes), running: s.Processes,
		stuck: s.Stuck,
		Auth:  string(c.Auth.Mode), SignIn: c.OperatorSignsIn(), Note: note(s, c.Program()), Invalid: c.Blocked != "",
	}
	if p.Config().Packs[s.Name] != "" && u.Advice != "" && c.Program() == config.PackProgram {
		u.Advice = config.NoPackProgram
	}
	switch s.State {
	case upstream.StateReady:
		u.Note = cmp.Or(p.Trouble(s.Name), silent(len(s.Stuck)), awaited(&s.Awaited), unasked(s), rootless(s),
			reported(s, c, time.Now()), second(s))
	case upstream.StateDegraded, upstream.StateClosed:
		u.Note = silent(len(s.Stuck))
	}
	if (len(s.Stuck) > 0 || !s.Awaited.Since.IsZero()) && u.Advice == "" {
		u.Advice = stuckAdvice(p.File, s.Name)
	}
	credential := p.Credential(s.Name)
	if u.Note == "" {
		u.Note = prose.Flat(credential.Notes)
	}
	u.Secrets, u.Sends = p.Secrets(s.Name), c.Sends()
	u.NoFolder = p.noFolder(s.Name)
	if connected := s.State == upstream.StateReady || s.State == upstream.StateClosed; connected && u.Note == "" {
		u.Note = p.permitted(s.Name)
	}
	if u.NoFolder && (u.Advice == "" || s.State == upstream.StateWaiting) { // no client can wake it before
		u.Advice = p.permitAdvice()
	}
	if u.Lacks = credential.Lacks; len(u.Lacks) > 0 {
		lacks := &upstream.LackError{Upstream: s.Name, Mode: c.Auth.Mode, Lacks: true, Scopes: u.Lacks}
		u.Note = "some calls fail: " + signInOf(p.File, s.Name, lacks.Error())
	}
	return u
}

// unasked returns why calls have failed that would have sent a request to the client; "" if none did.
func unasked(s *upstream.Status) string {
	if s.Unasked == "" {
		return ""
	}
	return fmt.Sprintf("%s; set %q in upstreams.%s", unaskedText, s.Unasked, s.Name)
}

// rootless returns that a server works in no folder of its clients; "" if it does not ask for one.
func rootless(s *upstream.Status) string {
	if !s.Rootless {
		return ""
	}
	return rootlessText + "; " + fmt.Sprintf(rootlessAdvice, s.Name)
}

const (
	rootlessText   = "the server asks for the folders of its client (roots), and gets none"
	rootlessAdvice = `set "isolation: folder" in upstreams.%s`

	// Only the check of doctor declares roots to such a server.
	asksText   = "the server works, and asks only clients that offer their folders (roots) for them"
	asksAdvice = `if its tools belong in the folder of each client, set "isolation: folder" in upstreams.%s`
)

// second returns that a command runs twice, although no line of the file says so; "" if it does not.
func second(s *upstream.Status) string {
	if s.Seconds == 0 {
		return ""
	}
	return fmt.Sprintf("calls of legacy clients (%s) go to a second process, which can ask them and has none of the "+
		"state of the first; set \"era: modern\" in upstreams.%s to keep one process",
		prose.Count(s.Seconds, "connection"), s.Name)
}

const unaskedText = "calls failed because the server cannot send requests to the client in this era of the protocol"

// reported returns the last problem that a server has reported; "" if there is none.
func reported(s *upstream.Status, c upstream.Config, now time.Time) string {
	if len(s.Reported) == 0 {
		return ""
	}
	last := s.Reported[len(s.Reported)-1]
	text := fmt.Sprintf("%s (reported %s ago)", problem(c, last.Text), prose.Age(now.Sub(last.At)))
	if more := len(s.Reported) - 1; more > 0 {
		text += fmt.Sprintf(", and %d more; run: %s", more, shell.Join("junction", "doctor", s.Name))
	}
	return text
}

// Statuses returns the state of every upstream.
func (p *Proxy) Statuses() []upstream.Status {
	var list []upstream.Status
	for _, u := range p.Set.All() {
		s := u.Status()
		if why := p.refusal(s.Name); why != "" && s.State == upstream.StateSignIn {
			s.Err = why
		}
		s.Err = signInOf(p.File, s.Name, s.Err)
		list = append(list, s)
	}
	return list
}

// signInOf returns the text of an upstream.LackError with the configuration file in its command. The
// error itself does not name the file, because clients get it, too.
func signInOf(file, upstreamName, text string) string {
	const run = "run: "
	plain := upstream.LoginCommand(upstreamName)
	return strings.Replace(text, run+plain, run+config.Command(file, "login", upstreamName), 1)
}

// refusal returns why the last sign-in at an upstream was refused, in a sentence; "" if it was not.
func (p *Proxy) refusal(name string) string {
	if why := p.Credential(name).Refused; why != "" {
		return "the last sign-in was refused: " + why
	}
	return ""
}

// patient is the time after which a silent upstream no longer keeps the proxy from being ready.
const patient = 20 * time.Second

// starting reports whether an upstream has neither connected nor failed yet.
func starting(list []upstream.Status) bool {
	return slices.ContainsFunc(list, func(s upstream.Status) bool {
		return s.State == upstream.StateStarting && s.Err == "" && (s.Era == client.EraAuto || s.Stored) &&
			time.Since(s.Since) < patient
	})
}
