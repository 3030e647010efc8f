package proxy

import (
	"strings"
	"testing"

	"junction/auth"
	"junction/proxy/proxytest"
	"junction/upstream"
)

// TestListHasTheFirstCatalog: the snapshot of a list is older than the first catalog of a server, which has been
// connected meanwhile. The list has the tools of the server.
func TestListHasTheFirstCatalog(t *testing.T) {
	b := proxytest.NewBackend(t, 1, 10)
	first := b.Lists
	b.Lists = &upstream.Catalog{}
	s := mustCore(t, b)
	b.Lists = first // and Refresh is yet to come
	if d := s.answerAs(t, auth.Local, "tools/list", `{}`); !strings.Contains(string(d.answer), `"name":"up__tool0"`) {
		t.Errorf("the list is %.300s, %v", d.answer, d.err)
	}
}
