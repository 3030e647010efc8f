package oddities

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"junction/auth/authtest"
	"junction/auth/credentials"
	"junction/auth/oauth"
	"junction/cmd/junction/base/config"
	"junction/cmd/junction/ops/signins"
	"junction/integration/harness"
	"junction/integration/harness/process"
	"junction/upstream"
)

// This file signs in to the servers of rows, as the operator does before the program starts.

// signIn signs in to all servers with a sign-in: to the first one with the command, which makes the
// storage, and to the others as the command does, without a process for each.
func signIn(t *testing.T, p *harness.Program, all []*odd) {
	t.Helper()
	all = slices.DeleteFunc(slices.Clone(all), func(o *odd) bool { return o.SignIn == "" })
	if len(all) == 0 {
		return
	}
	resolveNames(t)
	slices.SortStableFunc(all, func(a, b *odd) int { // the command does not resolve the names
		return map[bool]int{true: 1}[a.SignIn == "named"] - map[bool]int{true: 1}[b.SignIn == "named"]
	})
	all[0].signIn = login(t, p, all[0].name())
	ctx, cancel := context.WithTimeout(t.Context(), harness.Patience)
	defer cancel()
	c, err := config.LoadForCommand(p.File())
	if err != nil {
		t.Fatal(err)
	}
	ring, _, err := signins.MasterKeys(c.Storage, os.LookupEnv)
	if err != nil {
		t.Fatal(err)
	}
	s, err := signins.OpenStore(ctx, c.Storage, c.Storage.DSN, ring, true)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	fetcher, err := c.Outbound.Fetcher()
	if err != nil {
		t.Fatal(err)
	}
	client := oauth.New(oauth.Options{Store: s, Name: "Junction", Fetch: fetcher, HTTP: config.Trusting(fetcher),
		Log: authtest.Log(t)})
	defer client.Close()
	client.Apply(credentials.SignIns(upstream.OwnerOperator, c.Upstreams))
	for _, o := range all[1:] {
		o.signIn = signInTo(ctx, client, o.name())
	}
}

// signInTo signs in to one server.
func signInTo(ctx context.Context, client *oauth.Client, name string) error {
	attempt, err := client.Login(ctx, name, "http://127.0.0.1:61803"+oauth.CallbackPath(name))
	if err != nil {
		return err
	}
	where, err := attempt.URL()
	if err != nil {
		return err
	}
	back, err := visit(ctx, where)
	if err != nil {
		return err
	}
	answer, err := url.Parse(back)
	if err != nil {
		return err
	}
	if !attempt.Mine(answer.Query()) {
		return errors.New("the answer is of another sign-in")
	}
	return attempt.Finish(ctx, answer.Query())
}

// authorizeURL is in what junction login prints.
var authorizeURL = regexp.MustCompile(`(?m)^  (http\S+)$`)

// login runs junction login, and goes where it sends the browser.
func login(t *testing.T, p *harness.Program, name string) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), harness.Patience)
	defer cancel()
	args := []string{"login", name, "--no-browser", "--config", p.File()}
	cmd := exec.CommandContext(ctx, harness.JunctionBinary(t), args...)
	cmd.Env = append(process.OwnerOf(t).Environ(os.Environ()), p.Owner()...)
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	var printed bytes.Buffer
	pipe, out := io.Pipe()
	cmd.Stdout, cmd.Stderr = authtest.Command(t, args, &printed, io.MultiWriter(&printed, out))
	var browser sync.WaitGroup
	browser.Go(func() {
		defer in.Close()
		lines := bufio.NewScanner(pipe)
		for lines.Scan() {
			if m := authorizeURL.FindStringSubmatch(lines.Text()); m != nil {
				back, err := visit(ctx, m[1])
				if err != nil { // login refuses it
					back = err.Error()
				}
				fmt.Fprintln(in, back)
			}
		}
	})
	err = cmd.Run()
	out.Close()
	browser.Wait()
	if err != nil {
		lines := strings.Split(strings.TrimSpace(printed.String()), "\n")
		return errors.New(lines[len(lines)-1])
	}
	return nil
}

// visit goes to a page that signs in without a person, and returns where it sends the browser.
func visit(ctx context.Context, page string) (string, error) {
	q, err := http.NewRequestWithContext(ctx, http.MethodGet, page, nil)
	if err != nil {
		return "", err
	}
	ca, err := authority()
	if err != nil {
		return "", err
	}
	trusted := x509.NewCertPool()
	trusted.AddCert(ca.Certificate)
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: trusted}, DisableKeepAlives: true}
	browser := &http.Client{Transport: transport, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	resp, err := browser.Do(q)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	back := resp.Header.Get("Location")
	if back == "" {
		return "", fmt.Errorf("the page answers %s", resp.Status)
	}
	return back, nil
}

// resolveNames lets this process resolve the names of authorization servers to this machine.
func resolveNames(t *testing.T) {
	system := net.DefaultResolver
	t.Cleanup(func() { net.DefaultResolver = system })
	net.DefaultResolver = &net.Resolver{PreferGo: true, Dial: func(context.Context, string, string) (net.Conn, error) {
		here, there := net.Pipe()
		go answerNames(there)
		return here, nil
	}}
}

// answerNames answers the queries on a connection of DNS, as over TCP: a message has its length first. Each
// name has the address 127.0.0.1.
func answerNames(c net.Conn) {
	defer c.Close()
	for {
		var length [2]byte
		if _, err := io.ReadFull(c, length[:]); err != nil {
			return
		}
		query := make([]byte, binary.BigEndian.Uint16(length[:]))
		if _, err := io.ReadFull(c, query); err != nil || len(query) < 17 {
			return
		}
		end := 12 + bytes.IndexByte(query[12:], 0) + 5 // of the question: its name, type and class
		if end > len(query) {
			return
		}
		message := append([]byte{query[0], query[1], 0x81, 0x80, 0, 1, 0, 0, 0, 0, 0, 0}, query[12:end]...)
		if query[end-3] == 1 { // an address of IPv4
			message[7] = 1
			message = append(message, 0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 1, 0, 4, 127, 0, 0, 1)
		}
		if _, err := c.Write(append(binary.BigEndian.AppendUint16(nil, uint16(len(message))), message...)); err != nil {
			return
		}
	}
}
