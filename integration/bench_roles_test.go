package integration

import (
	"flag"
	"fmt"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
)

// benchRole plays one of the programs that a benchmark starts beside the program under test, and returns when that program is done. It reports false for
// a name that is none of the benchmarks'. A role that fails says so on its standard error and exits with 1.
func benchRole(name string, args []string) (handled bool) {
	roles := map[string]func([]string) error{
		"bench-echo":       echoHTTP,
		"bench-echo-stdio": echoStdio,
		"bench-hop":        hop,
		"bench-load":       loadGenerator,
	}
	role, ok := roles[name]
	if !ok {
		return false
	}
	if err := role(args); err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", name, err)
		os.Exit(1)
	}
	return true
}

// hop is the plain reverse proxy of Go's standard library, which parses nothing: what one more hop costs in net/http.
func hop(args []string) error {
	fs := flag.NewFlagSet("bench-hop", flag.ContinueOnError)
	to := fs.String("to", "", "where requests go: http://HOST:PORT")
	if err := fs.Parse(args); err != nil {
		return err
	}
	target, err := url.Parse(*to)
	if err != nil {
		return fmt.Errorf("read the target: %w", err)
	}
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.MaxIdleConnsPerHost = 64 // as nginx gets; the default of two would dial for every third call
	proxy := &httputil.ReverseProxy{
		Transport: transport,
		Rewrite:   func(r *httputil.ProxyRequest) { r.SetURL(target) },
	}
	return serveRole(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		// Without this the server closes the request's body when the first bytes of the response are written. The transport, which may just be looking
		// for the body's end, then takes that for a failed request and cuts off the response.
		if err := http.NewResponseController(w).EnableFullDuplex(); err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		proxy.ServeHTTP(w, r)
	}))
}

// serveRole serves h on a free port of the loopback, tells its address in one line on standard output. It ends with the process.
func serveRole(h http.Handler) error {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return fmt.Errorf("listen: %w", err)
	}
	fmt.Println(l.Addr())
	return fmt.Errorf("serve: %w", http.Serve(l, h))
}
