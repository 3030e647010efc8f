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
	"junction/upstream/prose"
)

// clientKind says how a client is identified.
type clientKind string

const (
	kindStatic     clientKind = "static"     // configured by the operator
	kindDocument   clientKind = "document"   // its id is the URL of its metadata document, so that its host is verified
	kindRegistered clientKind = "registered" // self-registered (unverified)
)

// client is a program that asks users for access. Name is self-reported. Host is verified; it is ""
// for a registered client.
type client struct {
	ID        string
	Kind      clientKind
	Name      string
	Host      string
	Redirects []string
	Keys      *clientKeys // nil if the client does not sign
	MustSign  bool        // signing is the only authentication method of the client
}

// label is the name of the client on pages.
func (c *client) label() string { return cmp.Or(c.Name, c.Host, "Unnamed app") }

// pageError is a fault of a client or of its redirect URI. Its text is shown to the person in the
// browser and is never sent to a redirect URI.
type pageError struct {
	code string // invalid_client, invalid_redirect_uri or blocked
	text string
}

func (p *pageError) Error() string { return p.text }

// clientOf returns the client with an id. The error is a *pageError if there is none or it is
// blocked; any other error means that the client could not be looked up.
func (srv *Server) clientOf(ctx context.Context, id string) (*client, error) {
	// The check comes first, so that nothing is fetched for a blocked client.
	if err := srv.checkBlocked(ctx, id); err != nil {
		return nil, err
	}
	return srv.resolve(ctx, id)
}

// codeBlocked is the pageError code of a blocked client. The page then does not suggest to register
// again.
const codeBlocked = "blocked"

// checkBlocked returns a *pageError if the operator has blocked the client.
func (srv *Server) checkBlocked(ctx context.Context, id string) error {
	err := srv.store.ClientBlocked(ctx, id)
	if errors.Is(err, store.ErrRevoked) {
		return &pageError{codeBlocked, "The operator of this server has blocked this app."}
	}
	return err
}

// NameOf returns the self-reported name in a client_id that this server issued, and "" for a
// client_id that is a URL. The error says why the client_id is neither.
func NameOf(keys *seal.Ring, id string) (string, error) {
	if strings.HasPrefix(id, "https://") {
		_, err := documentURL(id)
		return "", err
	}
	c, err := newRegistrar(keys.Secrets("dcr")...).open(id)
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
			return nil, &pageError{"invalid_client", "This server did not issue the app's client_id, " +
				"or issued it with a key that is no longer configured."}
		}
		return c, nil
	case strings.HasPrefix(id, "https://"):
		if srv.documents != nil {
			return srv.documents.client(ctx, id)
		}
	}
	return nil, &pageError{"invalid_client", "This server does not know the app."}
}

// redirectOf returns the redirect URI for an answer. The error is a *pageError.
func redirectOf(c *client, given string) (string, error) {
	if given == "" && len(c.Redirects) == 1 {
		return c.Redirects[0], nil // RFC 6749, section 3.1.2.3
	}
	if given == "" {
		return "", &pageError{"invalid_redirect_uri", "The app did not send a redirect_uri."}
	}
	if !matchRedirect(c.Redirects, given) {
		return "", &pageError{"invalid_redirect_uri", "The app asks to return to an address that it has not " +
			"registered: " + prose.ASCII(given, 200)}
	}
	return given, nil
}

const maxClientName = 80 // runes

// cleanName removes what could make a name look like something else: control characters, characters
// that change the direction of writing, and invisible ones.
func cleanName(name string) string {
	n := 0
	s := strings.Map(func(r rune) rune {
		if r == utf8.RuneError || n >= maxClientName || !unicode.IsPrint(r) && r != ' ' {
			return -1
		}
		// unicode.IsPrint has removed format characters (bidi, zero width, tags). These remaining
		// ones are printed as nothing.
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

// displayTarget returns the target of a redirect URI for people. local means loopback.
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

var errNotIssued = errors.New("the client_id was not issued by this server")
