package transport

import (
	"bytes"
	"fmt"
	"html"
	"io"
	"net/http"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"time"
	"unicode"

	"junction/upstream/jsonrpc"
)

const (
	statusBody = 4 << 10 // of a body that is not JSON
	// to read the body of an error response, which is only used for messages
	statusTime = 5 * time.Second
)

// StatusError means that the server answered a request with an HTTP status other than success, or
// with success but without a message.
type StatusError struct {
	Status     int
	Body       []byte           // at most 4 KiB
	Message    *jsonrpc.Message // nil unless the body is a JSON-RPC error response with our id or without id
	RetryAfter time.Duration    // 0 if absent
	Challenge  []string         // WWW-Authenticate, unchanged
	HasResult  bool             // the body is the result for our request, although the status is an error
	// the status is 401, the request decides nothing about the sign-in, and its token was renewed just
	// before, or there is no other one: see renewal.go
	Renewed bool

	media    string
	location *url.URL // of a redirect
	circle   bool     // location is the requested URL
	query    bool     // location has a query that the requested URL does not have
}

// status reads the body of a response that contains no response to the request called id, and
// closes the trip. err is e, unless the body is the response to another request: then e is nil, because
// nothing of the response counts.
func (o *origin) status(t *trip, id jsonrpc.ID) (e *StatusError, err error) {
	e = &StatusError{
		Status: t.StatusCode, media: t.media(), RetryAfter: retryAfter(t.header()),
		Challenge: t.header().Values("WWW-Authenticate"), Renewed: t.renewed,
	}
	if e.Status/100 == 3 {
		if to := location(t); to != nil {
			e.location, e.circle = to, t.circle
			e.query = to.RawQuery != "" && to.RawQuery != t.url.RawQuery
		}
	}
	late := time.AfterFunc(statusTime, t.breakOff)
	defer t.close()
	defer late.Stop()
	defer func() {
		if e != nil {
			o.concealIn(e, t.forwarded)
		}
	}()
	if !isJSON(e.media) {
		b := make([]byte, statusBody)
		n, _ := io.ReadFull(t, b) // a part is enough
		e.Body = b[:n]
		return e, e
	}
	text, err := o.body(t, nil)
	e.Body = text[:min(len(text), statusBody)]
	if err != nil {
		return e, e
	}
	m, err := jsonrpc.ParseSingle(text, o.depth)
	switch {
	case err != nil:
	case isOther(&m, id):
		return nil, o.misplaced(t, &m, id)
	case m.Error != nil && answers(&m, id):
		e.Message = &m
	case m.Error == nil && answers(&m, id):
		e.HasResult = e.Status/100 != 2
	}
	return e, e
}

// misplaced returns the error for a response to another request than that with this id, and distrusts
// the connection.
func (o *origin) misplaced(t *trip, m *jsonrpc.Message, id jsonrpc.ID) error {
	o.distrust(t)
	return fmt.Errorf("%w: status %d with %s to the request %s", ErrInvalid, t.StatusCode, o.what(m, t.forwarded), id)
}

// WantsOAuth reports whether the server referred to the metadata of its authorization server (RFC
// 9728, section 5.1).
func (e *StatusError) WantsOAuth() bool {
	c, _ := OfBearer(e.Challenge)
	return e.Status == http.StatusUnauthorized && c.Parameters["resource_metadata"] != ""
}

// Lacks reports whether the server rejected the token because it lacks a scope (RFC 6750, section
// 3.1), and returns the scopes that the request needs. They are safe in a command line; scopes with
// other characters are omitted.
func (e *StatusError) Lacks() (scopes []string, lacks bool) {
	c, _ := OfBearer(e.Challenge)
	if e.Status != http.StatusForbidden || !strings.EqualFold(c.Parameters["error"], "insufficient_scope") {
		return nil, false
	}
	for _, scope := range strings.Fields(c.Parameters["scope"]) {
		if plainScope.MatchString(scope) && len(scopes) < mostScopes {
			scopes = append(scopes, scope)
		}
	}
	return scopes, true
}

var plainScope = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._:/@=+~-]{0,99}$`)

// mostScopes is the most scopes that are read from a challenge.
const mostScopes = 20

// Error includes at most one line of the body.
func (e *StatusError) Error() string { return e.text(nil) }

// Clean implements Cleaner.
func (e *StatusError) Clean(clean func(string) string) string { return e.text(clean) }

// text is Error, or Clean if clean is not nil.
func (e *StatusError) text(clean func(string) string) string {
	text := "the server answered " + strings.TrimSpace(strconv.Itoa(e.Status)+" "+http.StatusText(e.Status))
	switch {
	case e.location != nil:
		switch to := e.Location(); {
		case e.circle:
			return "the server redirects " + to + " to itself"
		case e.RedirectsToSignIn():
			return "the server redirects to " + to + ", which looks like a page for signing in with a browser"
		case e.query: // without the query it is another address, perhaps a sign-in page
			return "the server redirects to " + to + " with a query, which is not shown"
		default:
			return "the server redirects to " + to + "; put that into url"
		}
	case e.Status/100 == 2 && e.media != "":
		text += " with " + line(e.media, clean) + " and no message"
	case e.Status/100 == 2:
		text += " and no message"
	case e.HasResult:
		return text + ", with a result in it"
	}
	words := e.reason(clean)
	if words == "" {
		return text
	}
	return text + ": " + words
}

// Location returns where a redirect leads, without its query, which may carry a secret. It is "" if
// the response is no redirect.
func (e *StatusError) Location() string {
	if e.location == nil {
		return ""
	}
	u := url.URL{Scheme: e.location.Scheme, Host: e.location.Host, Path: e.location.Path}
	return u.String()
}

// RedirectsToSignIn reports whether the response is a redirect to a page for signing in, by the words
// of its path.
func (e *StatusError) RedirectsToSignIn() bool {
	return e.location != nil && signInPath.MatchString(e.location.Path)
}

var signInPath = regexp.MustCompile(`(?i)(?:^|[/_.-])(?:log-?in|sign[_-]?in|sso|saml2?|oauth2?|authorize)(?:$|[/_.-])`)

// Same reports whether two answers have the same status and text.
func (e *StatusError) Same(o *StatusError) bool {
	return e.Status == o.Status && bytes.Equal(e.Body, o.Body)
}

// Reason returns one line of the body, or the title of a page; "" if there is none.
func (e *StatusError) Reason() string { return e.reason(nil) }

func (e *StatusError) reason(clean func(string) string) string {
	switch {
	case e.Message != nil:
		return line(e.Message.Error.Error(), clean)
	case e.media == "text/html" || bytes.HasPrefix(bytes.TrimSpace(e.Body), []byte("<")):
		return line(title(e.Body), clean)
	case strings.HasPrefix(e.media, "text/") || e.media == "" || isJSON(e.media):
		body := string(e.Body)
		if clean != nil && len(body) >= statusBody && clean(body) != body {
			return "" // perhaps a match begins before the end of the part that was read
		}
		return line(body, clean)
	}
	return ""
}

// Line returns the first line that is not empty, of at most 200 characters, as Shorten does.
func Line(text []byte) string { return line(string(text[:min(len(text), statusBody)]), nil) }

// line is Line. clean is applied to the text as the server wrote it, and as it is shown.
func line(text string, clean func(string) string) string {
	if clean != nil {
		text = clean(text)
	}
	first, _, _ := strings.Cut(strings.TrimSpace(text), "\n")
	if first = printable(first); clean != nil {
		first = clean(first)
	}
	return Shorten(first, 200)
}

// OneLine returns a text that the server may have written, of any length, as one line of at most
// mostShown characters, for logs and tables.
func OneLine(text string) string {
	return Shorten(strings.Join(strings.Fields(text[:min(len(text), 8*mostShown)]), " "), mostShown)
}

// CleanLine is OneLine for one reader: clean is applied to the line before it is shortened.
func CleanLine(text string, clean func(string) string) string {
	return Shorten(clean(printable(strings.Join(strings.Fields(text), " "))), mostShown)
}

// printable returns a text without unprintable characters.
func printable(text string) string {
	return strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return -1
		}
		return r
	}, strings.ToValidUTF8(text, ""))
}

// mostShown is the most characters of an error that are logged and displayed.
const mostShown = 1000

// Shorten returns at most most characters of a text of a server, for display: unprintable
// characters are left out, and … marks a cut.
func Shorten(text string, most int) string {
	var b strings.Builder
	n := 0
	for _, r := range strings.ToValidUTF8(text[:min(len(text), 8*most)], "") {
		if n++; n > most {
			b.WriteString("…")
			break
		}
		if unicode.IsPrint(r) {
			b.WriteRune(r)
		}
	}
	return strings.TrimSpace(b.String())
}

var pageTitle = regexp.MustCompile(`(?is)<title[^>]*>(.*?)</title`)

// title returns the title of an HTML page, or "".
func title(page []byte) string {
	m := pageTitle.FindSubmatch(page)
	if m == nil {
		return ""
	}
	return strings.Join(strings.Fields(html.UnescapeString(string(m[1]))), " ")
}

// retryAfter parses Retry-After: a number of seconds or a date (RFC 9110, section 10.2.3).
func retryAfter(header http.Header) time.Duration {
	text := header.Get("Retry-After")
	if text == "" {
		return 0
	}
	if s, err := strconv.ParseUint(text, 10, 31); err == nil {
		return time.Duration(s) * time.Second
	}
	if at, err := http.ParseTime(text); err == nil {
		return max(0, time.Until(at))
	}
	return 0
}
