package bridge

import (
	"bytes"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"junction/upstream/jsonrpc"
	"junction/upstream/raw"
)

// TestFolderReachesTheEndpoint: each request of both eras has the header.
func TestFolderReachesTheEndpoint(t *testing.T) {
	var mu sync.Mutex
	got := map[string]string{}
	endpoint := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		m, err := jsonrpc.Parse(body, raw.DefaultDepth)
		if err != nil {
			t.Error(err)
		}
		mu.Lock()
		got[m.Method] = r.Header.Get("Junction-Folder")
		mu.Unlock()
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":{}}`, m.ID)
	}))
	defer endpoint.Close()
	in := strings.NewReader(hello + "\n" + `{"jsonrpc":"2.0","id":1,"method":"server/discover","params":{` + meta + "}}\n")
	var out bytes.Buffer
	err := Run(t.Context(), Options{URL: endpoint.URL, Headers: map[string]string{"Junction-Folder": "file:///shop"},
		In: in, Out: &out})
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]string{"initialize": "file:///shop", "server/discover": "file:///shop"}
	if !maps.Equal(got, want) {
		t.Errorf("the requests have %v, want %v", got, want)
	}
}
