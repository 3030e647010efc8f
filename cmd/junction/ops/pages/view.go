package pages

import (
	"context"
	"net/http"
	"net/url"
)

// View is for whom a page is made. The zero value is for everybody who can open the admin address.
type View struct {
	Base  string // the path of the first page, such as / or /c/NAME/
	Owner bool   // the reader is the user who runs Junction
	Token string // of the forms of the owner; "" without forms
	// Ended ends with the session of the owner, and Lasts reports whether the session has not ended. A page that
	// stays open does not make the session longer. Both are nil without a session.
	Ended context.Context
	Lasts func() bool
}

// QuietHeader is a header of requests that the script of a page sends by itself. They are no use of a session.
const QuietHeader = "Junction-Quiet"

// viewKey is the key of a View in the context of a request.
type viewKey struct{}

// with returns a request with a view.
func (v View) with(r *http.Request) *http.Request {
	return r.WithContext(context.WithValue(r.Context(), viewKey{}, v))
}

// viewOf returns the view of a request.
func viewOf(r *http.Request) View {
	if v, ok := r.Context().Value(viewKey{}).(View); ok {
		return v
	}
	return View{Base: "/"}
}

// serverPage returns the path of the page of an upstream.
func (v View) serverPage(upstream string) string {
	return v.Base + "servers/" + url.PathEscape(upstream)
}
