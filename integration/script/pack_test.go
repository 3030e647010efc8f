//go:build unix

package script

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"

	"github.com/rogpeppe/go-internal/testscript"

	"junction/auth/authtest"
)

// The stories of packs, by what they show through Junction in both eras. pack_clients has the clients
// of the SDKs; the other stories use junction call, and TestPackAsksTheModel and TestPackReload
// (integration/bridge) clients of their own.
//
//	tools of commands                                   pack, pack_clients
//	tools of OpenAPI documents and HTTP requests        pack_api, pack_clients
//	tools of prompts, with a model hint and a schema    pack_clients, pack_files
//	prompts and resources of files                      pack_files, pack_clients
//	timeouts, limits, variables, references             pack, pack_api
//	tools chosen and renamed by the entry               pack_clients
//	tools turned on by the entry, capabilities          pack_tools
//	servers of a pack                                   pack_servers
//	validation with file, line and remedy               pack, pack_files, pack_upstream, pack_check
//	a changed or broken manifest                        pack, pack_upstream, TestPackReload
//	install, list, show, enable, disable, update,
//	remove; pinned, checked against the lock file       packs, pack_clients
//	the hosts that a fetched document may name          pack_fetched
//	retries, cut output, http, relative servers         pack_requests
//	doctor                                              pack_clients, pack_check
//	what an install refuses                             packs_refused

// cmdPackServe is the command packserve NAME ARG ... of the scripts.
func cmdPackServe(ts *testscript.TestScript, neg bool, args []string) {
	once(ts, neg, len(args) >= 2, "packserve NAME ARG ...")
	cmd := exec.Command(filepath.Join(filepath.SplitList(ts.Getenv("PATH"))[0], "junction-pack"),
		append([]string{"serve"}, args[1:]...)...)
	cmd.Dir = ts.MkAbs(".")
	cmd.Env = []string{"PATH=" + ts.Getenv("PATH"), "HOME=" + ts.Getenv("HOME"), "TOKEN=canary-api"}
	for _, name := range ts.Value(junctionKey{}).(*junctionProcess).names {
		cmd.Env = append(cmd.Env, name+"="+ts.Getenv(name))
	}
	cmd.Stderr = authtest.Searched(ts.Value(junctionKey{}).(*junctionProcess).t, "what junction-pack writes")
	out, err := cmd.StdoutPipe()
	ts.Check(err)
	ts.Check(cmd.Start())
	ended := make(chan error, 1)
	lines := bufio.NewReader(out)
	line, err := lines.ReadString('\n')
	go func() {
		io.Copy(io.Discard, lines)
		ended <- cmd.Wait()
	}()
	ts.Defer(func() {
		cmd.Process.Signal(syscall.SIGTERM)
		if err := <-ended; err != nil {
			ts.Logf("junction-pack: %v", err)
		}
	})
	_, url, ok := strings.Cut(strings.TrimSpace(line), "serving ")
	if err != nil || !ok {
		ts.Fatalf("junction-pack printed %q, %v", line, err)
	}
	setenv(ts, args[0], url)
}

func cmdGonePid(ts *testscript.TestScript, neg bool, args []string) {
	once(ts, neg, len(args) == 1, "gone_pid FILE")
	pid, err := strconv.Atoi(strings.TrimSpace(ts.ReadFile(args[0])))
	ts.Check(err)
	eventually(ts, func() string {
		if err := syscall.Kill(pid, 0); err == nil {
			return fmt.Sprintf("process %d runs", pid)
		}
		return ""
	})
}

// cmdAPI serves an HTTP API and sets a variable to its URL. It answers with what it got, unless the
// path has a word for something else.
func cmdAPI(ts *testscript.TestScript, neg bool, args []string) {
	once(ts, neg, len(args) == 1, "api NAME")
	busy := map[string]int{} // requests by method
	var mu sync.Mutex
	h := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		switch _, word, _ := strings.Cut(r.URL.Path, "/answer/"); word {
		case "html":
			w.Header().Set("Content-Type", "text/html")
			w.WriteHeader(http.StatusInternalServerError)
			io.WriteString(w, "<h1>broken</h1>"+strings.Repeat("x", 5000))
		case "bare":
			w.Header()["Content-Type"] = nil
			w.WriteHeader(http.StatusUnauthorized)
			io.WriteString(w, "who are you?")
		case "endless":
			w.Header().Set("Content-Type", "application/json")
			for block := bytes.Repeat([]byte("x"), 64<<10); ; {
				if _, err := w.Write(block); err != nil {
					return
				}
			}
		case "busy": // the first two requests of each method
			mu.Lock()
			busy[r.Method]++
			count := busy[r.Method]
			mu.Unlock()
			if count <= 2 {
				w.Header().Set("Retry-After", r.URL.Query().Get("after"))
				w.WriteHeader(http.StatusServiceUnavailable)
			}
			fmt.Fprintf(w, "%s number %d", r.Method, count)
		case "document": // an OpenAPI document with a relative server, and without security requirements
			w.Header().Set("Content-Type", "application/json")
			io.WriteString(w, `{"openapi": "3.1.0", "info": {"title": "x", "version": "1"}, "servers": [{"url": "../v1"}],
				"components": {"securitySchemes": {"token": {"type": "http", "scheme": "bearer"}}, "schemas": {
					"Size": {"type": "integer"}, "Names": {"type": "array", "items": {"type": "string"}}}},
				"paths": {"/things": {"post": {"operationId": "things", "parameters": [{"name": "size", "in": "query",
					"schema": {"$ref": "#/components/schemas/Size"}}, {"name": "names", "in": "query",
					"schema": {"$ref": "#/components/schemas/Names"}}]}}}}`)
		case "nothing":
			w.WriteHeader(http.StatusNoContent)
		case "silent":
			<-r.Context().Done()
		case "away":
			http.Redirect(w, r, "http://192.0.2.1/", http.StatusFound)
		case "image":
			w.Header().Set("Content-Type", "image/png")
			io.WriteString(w, "\x89PNG")
		default:
			w.Header().Set("Content-Type", "application/json")
			e := json.NewEncoder(w)
			e.SetEscapeHTML(false)
			e.Encode(map[string]any{"request": r.Method + " " + r.URL.RequestURI(), "body": string(body),
				"type": r.Header.Get("Content-Type"), "authorized": r.Header.Get("Authorization") == "Bearer canary-api"})
		}
	}))
	ts.Defer(func() {
		h.CloseClientConnections()
		h.Close()
	})
	setenv(ts, args[0], h.URL)
}
