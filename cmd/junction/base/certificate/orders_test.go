package certificate

import (
	"context"
	"crypto"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/crypto/acme"

	"junction/auth/authtest"
	"junction/cmd/junction/base/certificate/certificatetest"
)

// issuer is an authority whose answers a test chooses.
type issuer struct {
	mu       sync.Mutex
	days     int
	fails    error
	orders   []time.Time
	accounts []crypto.PublicKey
}

func (i *issuer) order(t *testing.T) func(context.Context, crypto.Signer, string) (*tls.Certificate, error) {
	return func(_ context.Context, account crypto.Signer, host string) (*tls.Certificate, error) {
		i.mu.Lock()
		defer i.mu.Unlock()
		i.orders, i.accounts = append(i.orders, time.Now()), append(i.accounts, account.Public())
		if i.fails != nil {
			return nil, i.fails
		}
		made := certificatetest.MustSign(t, nil, "leaf", i.days, func(c *x509.Certificate) {
			c.DNSNames, c.NotBefore = []string{host}, time.Now()
		})
		return &tls.Certificate{Certificate: [][]byte{made.Cert.Raw}, PrivateKey: made.Key, Leaf: made.Cert}, nil
	}
}

func (i *issuer) set(fails error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.fails = fails
}

func (i *issuer) count() int {
	i.mu.Lock()
	defer i.mu.Unlock()
	return len(i.orders)
}

// shop is Orders of one process after the other, over one folder.
type shop struct {
	t    *testing.T
	dir  string
	from *issuer
	host string
	log  *authtest.Text
	kept *Kept
	wake chan struct{}
	end  func()
}

// start starts a process.
func (s *shop) start() {
	s.t.Helper()
	store, err := OpenStore(s.dir, "https://ca.example/directory")
	if err != nil {
		s.t.Fatal(err)
	}
	s.kept, s.wake = &Kept{}, make(chan struct{}, 1)
	o := &Orders{Host: func() string { s.from.mu.Lock(); defer s.from.mu.Unlock(); return s.host }, Store: store,
		Order: s.from.order(s.t), Kept: s.kept, Log: authtest.Log(s.t, s.log), Wake: s.wake}
	o.Load()
	ctx, cancel := context.WithCancel(s.t.Context())
	var running sync.WaitGroup
	running.Go(func() { o.Run(ctx) })
	s.end = func() { cancel(); running.Wait() }
	synctest.Wait()
}

func newShop(t *testing.T) *shop {
	return &shop{t: t, dir: t.TempDir(), from: &issuer{days: 90}, host: certificatetest.Host, log: new(authtest.Text)}
}

// after lets time pass.
func after(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

const day = 24 * time.Hour

// TestOrdersAtTheStartAndRenewsInTime: the first start orders before any client has come, a restart does not order
// again, and the certificate is renewed when a third of its time is left, with the same account.
func TestOrdersAtTheStartAndRenewsInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newShop(t)
		s.start()
		if n := s.from.count(); n != 1 || s.kept.Check(t.Context()) != nil || s.kept.Left(time.Now()) < 89*day {
			t.Fatalf("after the start: %d orders, %v", n, s.kept.Check(t.Context()))
		}
		s.end()
		after(day)
		s.start()
		if n := s.from.count(); n != 1 {
			t.Errorf("a restart ordered again")
		}
		after(58 * day)
		if n := s.from.count(); n != 1 {
			t.Errorf("%d orders after 59 days", n)
		}
		after(5 * day)
		if n, left := s.from.count(), s.kept.Left(time.Now()); n != 2 || left < 85*day {
			t.Errorf("%d orders after 64 days, %v are left; want a renewal", n, left)
		}
		if s.from.accounts[0].(interface{ Equal(crypto.PublicKey) bool }).Equal(s.from.accounts[1]) == false {
			t.Error("the renewal had another account")
		}
		s.end()
		filepath.WalkDir(s.dir, func(path string, e fs.DirEntry, err error) error {
			info, _ := e.Info()
			if err == nil && info.Mode().Perm()&0o077 != 0 && path != s.dir {
				t.Errorf("others may read %s (%v)", path, info.Mode())
			}
			return err
		})
	})
}

// TestOutageOverTheExpiry: while the authority fails, the old certificate stays in use, orders are few, and health
// says why, also after the expiry. When the authority works again, all is well within an hour.
func TestOutageOverTheExpiry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newShop(t)
		s.start()
		defer func() { s.end() }()
		s.from.set(errors.New("connection refused\nby canary"))
		after(65 * day)
		if err := s.kept.Check(t.Context()); err == nil || !strings.Contains(err.Error(), "connection refused by canary") ||
			!strings.Contains(err.Error(), "the old certificate is in use until") {
			t.Errorf("during the outage, health has %v", err)
		}
		if _, err := s.kept.Certificate(nil); err != nil {
			t.Error(err)
		}
		before := s.from.count()
		after(day)
		if n := s.from.count() - before; n < 20 || n > 50 {
			t.Errorf("%d orders in a day of the outage, want about one an hour", n)
		}
		after(30 * day)
		if err := s.kept.Check(t.Context()); err == nil || !strings.Contains(err.Error(), "the certificate expired on") || s.kept.Left(time.Now()) > 0 {
			t.Errorf("after the expiry, health has %v", err)
		}
		s.from.set(nil)
		after(61 * time.Minute)
		if err := s.kept.Check(t.Context()); err != nil || s.kept.Left(time.Now()) < 89*day {
			t.Errorf("after the outage, health has %v", err)
		}
	})
}

// TestFailedFirstOrder: without any certificate, handshakes fail with the reason, and the next order waits longer
// after each failure.
func TestFailedFirstOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newShop(t)
		s.from.set(errors.New("the authority could not check mcp.example.com"))
		s.start()
		defer func() { s.end() }()
		if _, err := s.kept.Certificate(nil); err == nil {
			t.Error("there is a certificate")
		}
		if err := s.kept.Check(t.Context()); err == nil || !strings.Contains(err.Error(), "could not check") {
			t.Errorf("health has %v", err)
		}
		after(time.Hour)
		if n := s.from.count(); n < 3 || n > 6 {
			t.Errorf("%d orders in the first hour, want 3 to 6", n)
		}
		s.from.mu.Lock()
		s.host = "new.example.com"
		s.from.fails = nil
		s.from.mu.Unlock()
		s.wake <- struct{}{}
		synctest.Wait()
		if c, err := s.kept.Certificate(nil); err != nil || c.Leaf.VerifyHostname("new.example.com") != nil {
			t.Errorf("after a new host in the file: %v", err)
		}
	})
}

// TestRestartOrdersAtOnce: health says that a restart orders at once after an order that failed, also before the
// expiry, and the restart does.
func TestRestartOrdersAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newShop(t)
		s.start()
		s.from.set(errors.New("connection refused"))
		for s.from.count() == 1 {
			after(time.Minute)
		}
		if err := s.kept.Check(t.Context()); err == nil || !strings.Contains(err.Error(), "Z, or at a restart; the old certificate") {
			t.Errorf("health has %v", err)
		}
		s.end()
		s.from.set(nil)
		s.start()
		defer func() { s.end() }()
		if n := s.from.count(); n != 3 || s.kept.Check(t.Context()) != nil {
			t.Errorf("%d orders after a restart, want 3; health has %v", n, s.kept.Check(t.Context()))
		}
	})
}

// limited is the answer of an authority to too many orders.
func limited(retryAfter string) error {
	return &acme.Error{StatusCode: http.StatusTooManyRequests, ProblemType: "urn:ietf:params:acme:error:rateLimited",
		Detail: "too many certificates", Header: http.Header{"Retry-After": {retryAfter}}}
}

// TestRetryAfterIsRespected: a limited order is not sent again before the time of the authority, also after a
// restart, whether it is in seconds or a date.
func TestRetryAfterIsRespected(t *testing.T) {
	for _, asDate := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			s := newShop(t)
			value := "86400"
			if asDate {
				value = time.Now().Add(day).UTC().Format(http.TimeFormat)
			}
			s.from.set(limited(value))
			s.start()
			after(12 * time.Hour)
			if err := s.kept.Check(t.Context()); err == nil || strings.Contains(err.Error(), "restart") {
				t.Errorf("health has %v, but a restart orders no earlier", err)
			}
			s.end()
			s.from.set(nil)
			s.start()
			defer func() { s.end() }()
			if n := s.from.count(); n != 1 {
				t.Errorf("%d orders before the time of the authority", n)
			}
			if err := s.kept.Check(t.Context()); err == nil || !strings.Contains(err.Error(), "asked for no order before") {
				t.Errorf("health has %v", err)
			}
			after(12*time.Hour + time.Minute)
			if n := s.from.count(); n != 2 || s.kept.Check(t.Context()) != nil {
				t.Errorf("%d orders after the time of the authority, %v", n, s.kept.Check(t.Context()))
			}
		})
	}
}

// TestDamagedStoreIsMadeAgain: a damaged certificate and a damaged account are replaced, with a line in the log. A
// stored certificate of another host is not used.
func TestDamagedStoreIsMadeAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newShop(t)
		s.start()
		s.end()
		files, err := filepath.Glob(s.dir + "/*/*.pem")
		if len(files) != 2 || err != nil {
			t.Fatalf("stored are %q, %v; want the account and the certificate", files, err)
		}
		for _, file := range files {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(file, text[:len(text)/2], 0o600); err != nil {
				t.Fatal(err)
			}
		}
		s.start()
		if n := s.from.count(); n != 2 || s.kept.Check(t.Context()) != nil {
			t.Errorf("%d orders, %v; want a new one", n, s.kept.Check(t.Context()))
		}
		s.end()
		for _, line := range []string{"the stored certificate cannot be used", "the account at the authority cannot be used"} {
			if strings.Count(s.log.String(), line) != 1 {
				t.Errorf("the log has not once %q:\n%s", line, s.log)
			}
		}
		s.start()
		s.end()
		if n := s.from.count(); n != 2 {
			t.Errorf("what was made again is not stored: %d orders", n)
		}
	})
}

// TestStoreThatCannotBeWritten: a start fails, so that no start orders in vain. If the disk fails later, the new
// certificate is in use, health says so, and it is stored as soon as that is possible.
func TestStoreThatCannotBeWritten(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := OpenStore(file, "https://ca.example"); err == nil || !strings.HasPrefix(err.Error(), "tls.acme: cannot write certificates to ") {
		t.Errorf("a store in a file: %v", err)
	}
	synctest.Test(t, func(t *testing.T) {
		s := newShop(t)
		s.start()
		defer func() { s.end() }()
		folders, _ := filepath.Glob(s.dir + "/*")
		// A folder in the place of the file: not even root can replace it by a file.
		stored := filepath.Join(folders[0], certificatetest.Host+".pem")
		os.Remove(stored)
		if err := os.MkdirAll(filepath.Join(stored, "x"), 0o700); err != nil {
			t.Fatal(err)
		}
		after(65 * day)
		if err := s.kept.Check(t.Context()); err == nil || !strings.Contains(err.Error(), "cannot be stored") || s.kept.Left(time.Now()) < 84*day {
			t.Errorf("health has %v, and %v are left", err, s.kept.Left(time.Now()))
		}
		if err := os.RemoveAll(stored); err != nil {
			t.Fatal(err)
		}
		after(61 * time.Minute)
		if _, err := os.Stat(stored); err != nil || s.kept.Check(t.Context()) != nil || s.from.count() != 2 {
			t.Errorf("after that: %v, %v, %d orders", err, s.kept.Check(t.Context()), s.from.count())
		}
	})
}

// TestHangingAuthority: an authority that does not answer ends the order after half a minute.
func TestHangingAuthority(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hang := roundTrip(func(r *http.Request) (*http.Response, error) {
			<-r.Context().Done()
			return nil, r.Context().Err()
		})
		a := &Authority{Directory: "https://ca.example/directory", HTTP: &http.Client{Transport: hang}}
		store, err := OpenStore(t.TempDir(), a.Directory)
		if err != nil {
			t.Fatal(err)
		}
		account, _, err := store.Account()
		if err != nil {
			t.Fatal(err)
		}
		begin := time.Now()
		_, err = a.Order(t.Context(), account, certificatetest.Host)
		if took := time.Since(begin); err == nil || took != requestLimit {
			t.Errorf("the order ended after %v with %v, want %v", took, err, requestLimit)
		}
	})
}

// roundTrip answers requests.
type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// TestHandshakesCauseNoOrders: a handshake with the protocol of the check, or with any name, gets a certificate that
// is there, or an error, and no order begins.
func TestHandshakesCauseNoOrders(t *testing.T) {
	a := &Authority{}
	check := &tls.ClientHelloInfo{ServerName: certificatetest.Host, SupportedProtos: []string{Protocol}}
	if _, is, err := a.Challenge(check); !is || err == nil {
		t.Errorf("a check without an order: %t, %v", is, err)
	}
	answer := &tls.Certificate{}
	a.answer(certificatetest.Host, answer)
	if c, is, err := a.Challenge(check); c != answer || !is || err != nil {
		t.Errorf("a check of an order: %v, %t, %v", c, is, err)
	}
	for _, hello := range []*tls.ClientHelloInfo{
		{ServerName: certificatetest.Host}, {ServerName: certificatetest.Host, SupportedProtos: []string{"http/1.1"}},
		{ServerName: certificatetest.Host, SupportedProtos: []string{Protocol, "http/1.1"}},
	} {
		if c, is, _ := a.Challenge(hello); is || c != nil {
			t.Errorf("the handshake of a client (%q) gets the answer to a check", hello.SupportedProtos)
		}
	}
	other := &tls.ClientHelloInfo{ServerName: "other.example.com", SupportedProtos: []string{Protocol}}
	if _, _, err := a.Challenge(other); err == nil {
		t.Error("a check of another host is answered")
	}
}
