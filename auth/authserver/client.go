package authserver

import (
	"cmp"
	"context"
	"errors"
	"net/url"
	"strings"
	"unicode"
	"unicode/utf8"

	"junction/auth/seal"
	"junction/auth/store"
)

// clientKind says how a client says who it is.
type clientKind string

const (
	kindStatic     clientKind = "static"     // an operator wrote it into the file
	kindDocument   clientKind = "document"   // its id is the URL of its metadata, so that its host is known
	kindRegistered clientKind = "registered" // it says so itself
)

// client is a program that asks people to let it in. Its name is its own word, and means nothing;
// Host is verified, and "" of one that is only registered.
type client struct {
	ID        string
	Kind      clientKind
	Name      string
	Host      string
	Redirects []string
	Keys      *clientKeys // of one that can sign; nil
	MustSign  bool        // the client has no other way to say who it is
}

// label is what people are shown.
func (c *client) label() string { return cmp.Or(c.Name, c.Host, "An app without a name") }

// problem is what is wrong with a client, or with its redirect URI, in words for the person in the
// browser: it is shown here and never sent anywhere.
type pageError struct {
	code string // invalid_client, invalid_redirect_uri or blocked
	text string
}

func (p *pageError) Error() string { return p.text }

// clientOf returns the client with an id. The error is a *problem if there is none; another means
// that it could not be found out.
func (srv *Server) clientOf(ctx context.Context, id string) (*client, error) {
	// First, so that nothing is fetched from where a client that is shut out comes from.
	if err := srv.checkBlocked(ctx, id); err != nil {
		return nil, err
	}
	return srv.resolve(ctx, id)
}

// blocked is the code of a problem that a new registration must not help with.
const codeBlocked = "blocked"

// unblocked returns a *problem if the operator has shut a client out.
func (srv *Server) checkBlocked(ctx context.Context, id string) error {
	err := srv.store.ClientBlocked(ctx, id)
	if errors.Is(err, store.ErrRevoked) {
		return &pageError{codeBlocked, "The operator of this server has blocked this app."}
	}
	return err
}

// NameOf returns what a client calls itself, as far as its client_id says that: "" of one whose id
// is a URL. The error says why the id cannot be one of these two kinds.
func NameOf(keys *seal.Ring, id string) (string, error) {
	if strings.HasPrefix(id, "https://") {
		return "", checkDocumentURL(id)
	}
	secrets, err := keys.Secrets("dcr")
	if err != nil {
		return "", err
	}
	c, err := newRegistrar(secrets...).open(id)
	if err != nil {
		return "", err
	}
	return c.Name, nil
}

func (srv *Server) resolve(ctx context.Context, id string) (*client, error) {
	if s, ok := srv.static[id]; ok {
		return s, nil
	}
	switch {
	case strings.HasPrefix(id, registeredPrefix):
		if srv.config.Clients.DCR == dcrOff {
			break
		}
		c, err := srv.registrar.open(id)
		if err != nil {
			return nil, &pageError{"invalid_client", "This server did not make the app's client_id, or no longer " +
				"knows the key that it was made with."}
		}
		return c, nil
	case strings.HasPrefix(id, "https://"):
		if srv.documents != nil {
			return srv.documents.client(ctx, id)
		}
	}
	return nil, &pageError{"invalid_client", "The app is not known here."}
}

// redirectOf returns where the client wants its answer, if that may be.
func redirectOf(c *client, given string) (string, error) {
	if given == "" && len(c.Redirects) == 1 {
		return c.Redirects[0], nil // RFC 6749, section 3.1.2.3
	}
	if given == "" {
		return "", &pageError{"invalid_redirect_uri", "The app does not say where to return to (redirect_uri)."}
	}
	if !matchRedirect(c.Redirects, given) {
		return "", &pageError{"invalid_redirect_uri", "The app wants to return to an address that it has not " +
			"registered: " + safeText(given, 200)}
	}
	return given, nil
}

const maxClientName = 80 // runes

// clean returns a name without what would make it look like something else: control characters,
// those that turn the direction of writing around, and those that have no width.
func cleanName(name string) string {
	n := 0
	s := strings.Map(func(r rune) rune {
		if r == utf8.RuneError || n >= maxClientName || !unicode.IsPrint(r) && r != ' ' {
			return -1
		}
		// What is not printed has gone already: Go counts format characters (bidi, zero width,
		// tags) among those. What is left are fillers that look like nothing.
		switch {
		case r >= 0xFE00 && r <= 0xFE0F, r >= 0xE0100 && r <= 0xE01EF, r == 0x115F, r == 0x1160, r == 0x3164,
			r == 0xFFA0, r == 0x034F, r == 0x2800:
			return -1
		}
		n++
		return r
	}, name)
	return strings.Join(strings.Fields(s), " ")
}

// visible returns a stranger's text for a page or a log, cut after n bytes: whatever is not plain
// is escaped.
func safeText(s string, n int) string {
	cut := len(s) > n
	if cut {
		s = s[:n]
	}
	s = strings.Map(func(r rune) rune {
		if r < ' ' || r > '~' {
			return '?'
		}
		return r
	}, s)
	if cut {
		s += "…"
	}
	return s
}

// target is where a redirect URI leads, in words for people.
func displayTarget(uri string) (host string, local bool) {
	u, err := url.Parse(uri)
	if err != nil {
		return "", false
	}
	if u.Scheme == "http" || u.Scheme == "https" {
		return u.Host, isLoopback(uri)
	}
	return u.Scheme + "://", false
}

var errNotIssued = errors.New("not made by us")
