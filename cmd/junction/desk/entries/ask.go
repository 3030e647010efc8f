package entries

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"junction/auth/fetch"
	"junction/auth/oauth"
	"junction/cmd/junction/base/cli"
	"junction/cmd/junction/base/config"
	"junction/cmd/junction/desk/clients"
	"junction/upstream"
	"junction/upstream/client"
	"junction/upstream/loopback"
	"junction/upstream/shell"
	"junction/upstream/transport"
)

const (
	askTime   = 10 * time.Second // for one server
	askAll    = 30 * time.Second // for all of an import
	askAtOnce = 32
)

// A New is a new upstream, and what its server has answered.
type New struct {
	Name  string
	Entry *clients.Entry
	Asked bool   // a request was sent
	Note  string // for a person; "" if there is nothing to say

	Unreached bool // the server gave no answer; Note has the reason
	Roots     bool // the command was started, and has asked for the folders of its client
	Silent    bool // the command was started, and has answered nothing
}

// Ask asks the URLs of new entries, without credentials, whether they require or offer a sign-in, and
// sets auth of the entries. Entries with a command, a credential or a reference in the URL are not
// asked, and neither are disabled ones. Each command is started once, to find out whether it asks for the
// folders of its client. A person must have confirmed the entries before. rows shows
// what is asked; nil shows nothing. The error means that ctx has ended: nothing is known then.
func Ask(ctx context.Context, c *config.Config, list []*New, rows *cli.Waiting) error {
	asking, cancel := context.WithTimeout(ctx, askAll)
	defer cancel()
	fetcher, err := c.Outbound.Fetcher()
	if err != nil {
		fetcher = &fetch.Fetcher{} // the file is refused for that elsewhere
	}
	trusting := config.Trusting(fetcher)
	defer trusting.CloseIdleConnections()
	offers := oauth.New(oauth.Options{Fetch: fetcher, HTTP: trusting})
	if rows == nil {
		rows = &cli.Waiting{Out: io.Discard, Limit: askAll}
	}
	rows.While(ctx, func(progress *cli.Rows) {
		slots := make(chan struct{}, askAtOnce)
		starting := make(chan struct{}, rootsAtOnce)
		var all sync.WaitGroup
		for _, n := range list {
			if starts(n.Entry) {
				progress.Begin(n.Name)
				all.Go(func() {
					starting <- struct{}{}
					defer func() { <-starting }()
					n.start(asking)
					progress.End(n.Name, n.row())
				})
			}
			if !asks(n.Entry) {
				continue
			}
			progress.Begin(n.Name)
			all.Go(func() {
				slots <- struct{}{}
				defer func() { <-slots }()
				n.ask(asking, offers, c.Auth.SignInMode())
				progress.End(n.Name, n.row())
			})
		}
		all.Wait()
	}, cancel)
	if ctx.Err() != nil {
		return errors.New("stopped before the servers were asked; nothing was added")
	}
	return nil
}

// Progress returns the rows of Ask for a command that prints text. They are no result: what is found
// out is in the notes of the entries.
func Progress(cmd *cobra.Command) *cli.Waiting {
	return &cli.Waiting{Out: cmd.ErrOrStderr(), Limit: askAll, Quiet: time.Second, Brief: true, Doing: "Asking",
		About: "about sign-ins and folders", Enter: cli.EnterOf(cmd), Else: "goes on without them"}
}

// row returns what the server has answered, in one line.
func (n *New) row() string {
	switch {
	case n.Note != "":
		return n.Note // begins with the name
	case n.Roots:
		return n.Name + ": asks for the folders of its client"
	case n.Silent && n.installs():
		return n.Name + ": may not be downloaded yet, so that it is not known whether it asks for folders"
	case n.Silent:
		return n.Name + ": did not start, so that it is not known whether it asks for folders"
	case n.Entry.Runs():
		return n.Name + ": does not ask for folders"
	case n.Entry.Auth != "":
		return n.Name + ": needs a sign-in"
	}
	return n.Name + ": needs no sign-in"
}

// asks reports whether the URL of an entry is asked.
func asks(e *clients.Entry) bool {
	return !e.Runs() && e.Pack == "" && e.Auth == "" && !e.Off && e.Anonymous() && e.URL.IsLiteral()
}

// ask sets Auth and Note by the answer of the server. mode is that for a sign-in.
func (n *New) ask(ctx context.Context, offers *oauth.Client, mode upstream.AuthMode) {
	ctx, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	n.Asked = true
	u := oauth.Upstream{URL: n.Entry.URL.Expand(Lookup)}
	if word := n.Entry.Transport; word != "" {
		_ = u.Transport.UnmarshalText([]byte(word)) // the reader of the file reports a word that is none
	}
	asked := client.Probe(ctx, client.Options{URL: u.URL, Transport: u.Transport, ConnectTimeout: askTime})
	signIn := offers.Offers(ctx, u, asked)
	switch {
	case asked.Later() && asked.Status == 0:
		n.Unreached = true
		n.Note = fmt.Sprintf("%s could not be asked whether it needs a sign-in, because %s; junction status shows it "+
			"later", n.Name, reason(asked.Err))
	case asked.Later():
		n.Note = fmt.Sprintf("%s answered %d, so whether it needs a sign-in is unknown; junction status shows it later",
			n.Name, asked.Status)
	case signIn && !n.secure():
		n.Note = fmt.Sprintf("%s asks for a sign-in, which needs an https URL", n.Name)
	case signIn && !asked.Asks() && asked.Err == nil:
		n.Note = fmt.Sprintf("%s answers without a sign-in, and offers one, for some calls or for more tools; to use "+
			"it, run: %s", n.Name, shell.Join("junction", "login", n.Name))
	case signIn && !mode.Row().SignIn:
		n.Note = fmt.Sprintf("%s asks for a sign-in; users do not sign in to this Junction (auth.oauth), so all "+
			"callers would act with your account: if they may, set auth: { mode: %s }", n.Name,
			upstream.SignInMode(upstream.OwnerOperator))
	case signIn:
		n.Entry.Auth = string(mode)
	case asked.Status == http.StatusUnauthorized || asked.Status == http.StatusForbidden:
		n.Note = fmt.Sprintf("%s answered %d %s and named no sign-in: it needs a token; %s", n.Name,
			asked.Status, http.StatusText(asked.Status), upstream.UseToken())
	case asked.Status/100 == 3:
		n.Note = fmt.Sprintf("%s redirects to another address, which was not asked; check url", n.Name)
	}
}

// secure reports whether tokens may be sent to the URL.
func (n *New) secure() bool {
	u, err := url.Parse(n.Entry.URL.Expand(Lookup))
	if err != nil {
		return false
	}
	scheme, known := transport.SchemeOf(u)
	return known && (scheme.Secure || loopback.Host(u.Hostname()))
}

// reason returns why a server gave no answer, without its URL.
func reason(err error) string {
	if errors.Is(err, context.Canceled) {
		return "it was not waited for"
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return "it did not answer in time"
	}
	if e, ok := errors.AsType[*url.Error](err); ok {
		err = e.Err
	}
	return transport.Line([]byte(err.Error()))
}

// SignIns returns the sentences about the sign-ins that new upstreams of the file need.
func SignIns(file string, list []*New) []string {
	var lines []string
	for _, n := range list {
		if row := upstream.AuthMode(n.Entry.Auth).Row(); row.Next != "" {
			lines = append(lines, strings.ReplaceAll(row.About(row.Next, n.Name), upstream.LoginCommand(n.Name),
				config.Command(file, "login", n.Name)))
		}
	}
	return lines
}
