package diagnose

import (
	"testing"
)

// TestAdminIsForThisMachine: a page whose host name leads to us must not read what upstreams there
// are.
func TestAdminIsForThisMachine(t *testing.T) {
	for host, want := range map[string]bool{
		"127.0.0.1:8421": true, "127.0.0.1": true, "localhost:8421": true, "LocalHost": true, "[::1]:8421": true, "[::1]": true, "127.9.9.9:1": true,
		"[::ffff:127.0.0.1]:1": true, "": false, "evil.example": false, "evil.example:8421": false, "localhost.evil.example": false, "192.0.2.1:8421": false,
		"127.0.0.1.evil.example": false, "0.0.0.0:8421": false,
	} {
		if got := local(host); got != want {
			t.Errorf("local(%q) = %v, want %v", host, got, want)
		}
	}
}
