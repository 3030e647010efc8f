package diagnose

import (
	"crypto/subtle"
	"net/http"
	"os"

	"github.com/go-chi/chi/v5"

	"junction/cmd/junction/base/config"
	"junction/upstream/shell"
)

// Owner is the secret of the user who runs the proxy, who alone can read it (package runfile). The
// zero value is the secret of no request.
type Owner string

// OwnerHeader is the header in which commands send the secret. No page of another site can set it.
const OwnerHeader = "Junction-Owner"

// sentBy reports whether a request has the secret.
func (o Owner) sentBy(r *http.Request) bool {
	given := r.Header[OwnerHeader]
	return o != "" && len(given) == 1 && subtle.ConstantTimeCompare([]byte(given[0]), []byte(o)) == 1
}

// check reports whether a request has the secret. If not, it has answered the request.
func (o Owner) check(w http.ResponseWriter, r *http.Request) bool {
	if o.sentBy(r) {
		return true
	}
	folder := "the same XDG_STATE_HOME"
	if dir, err := config.StateDir(os.LookupEnv); err == nil {
		folder = "XDG_STATE_HOME=" + shell.Quote(dir)
	}
	http.Error(w, "Only the user who runs Junction may do this, and this request does not have the secret of that "+
		"user. Run the command as that user, or as root, on the same machine (junction doctor, junction reconnect), "+
		"with "+folder+".", http.StatusForbidden)
	return false
}

// only answers a request with next if it has the secret.
func (o Owner) only(next http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if o.check(w, r) {
			next(w, r)
		}
	}
}

// changes reports whether the route of a request may change something: it has another method than GET
// and HEAD.
func changes(routes chi.Routes, r *http.Request) bool {
	return r.Method != http.MethodGet && r.Method != http.MethodHead &&
		routes.Match(chi.NewRouteContext(), r.Method, pathOf(r))
}

// pathOf returns the path by which chi finds the route of a request.
func pathOf(r *http.Request) string {
	if r.URL.RawPath != "" {
		return r.URL.RawPath
	}
	return r.URL.Path
}
