package listeners

import (
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"junction/auth/authtest"
	"junction/upstream/http1"
)

// TestPanicsAreAnswered: a handler with a fault gets a line at the level error, and its client a
// sentence, over either server, or the end of the connection if the answer has begun. A handler that
// breaks the connection on purpose gets no line.
func TestPanicsAreAnswered(t *testing.T) {
	log := new(authtest.Text)
	h := Guarded(authtest.Log(t, log), http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/fine":
			io.WriteString(w, "fine")
			return
		case "/abort":
			panic(http.ErrAbortHandler)
		case "/begun":
			io.WriteString(w, "the beginning ")
			if err := http.NewResponseController(w).Flush(); err != nil {
				t.Error(err)
			}
		}
		var none *http.Server
		_ = none.Addr
	}))
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	fast := &http1.Server{HTTP: &http.Server{Handler: h}}
	go fast.Serve(l)
	t.Cleanup(func() { fast.Close() })
	plain := httptest.NewServer(h)
	t.Cleanup(plain.Close)
	for name, url := range map[string]string{"http1": "http://" + l.Addr().String(), "net/http": plain.URL} {
		for _, tt := range []struct {
			path   string
			status int  // 0 if there is no answer
			whole  bool // the answer comes to its end
			logged bool
		}{{"/fine", 200, true, false}, {"/fault", 500, true, true}, {"/begun", 200, false, true}, {"/abort", 0, false, false}} {
			before := len(log.String())
			status, whole, text := 0, false, ""
			if resp, err := http.Get(url + tt.path + "?secret=canary-query"); err == nil {
				body, err := io.ReadAll(resp.Body)
				resp.Body.Close()
				status, whole, text = resp.StatusCode, err == nil, string(body)
			}
			if status != tt.status || whole != tt.whole || tt.status == 500 && !strings.Contains(text, "Junction has a fault") {
				t.Errorf("%s%s is answered %d, whole %t, %q", name, tt.path, status, whole, text)
			}
			said := log.String()[before:]
			if logged := strings.Contains(said, "level=ERROR") && strings.Contains(said, "path="+tt.path) &&
				strings.Contains(said, "nil pointer"); logged != tt.logged || strings.Contains(said, "canary-query") {
				t.Errorf("%s%s: the log has %q", name, tt.path, said)
			}
		}
	}
}
