package loopback

import "testing"

func TestHost(t *testing.T) {
	for name, want := range map[string]bool{
		"localhost": true, "LOCALHOST": true, "127.0.0.1": true, "127.9.9.9": true, "::1": true, "::ffff:127.0.0.1": true,
		"": false, "a.localhost": false, "localhost.": false, "localhost.example.com": false, "127.1": false,
		"127.0.0.1.example.com": false, "0.0.0.0": false, "::": false, "10.0.0.1": false, "[::1]": false, "127.0.0.1:80": false,
	} {
		if got := Host(name); got != want {
			t.Errorf("Host(%q) = %v", name, got)
		}
	}
}

func TestAddress(t *testing.T) {
	for address, want := range map[string]bool{
		"127.0.0.1:80": true, "[::1]:80": true, "[::ffff:127.0.0.1]:80": true,
		"": false, "localhost:80": false, "0.0.0.0:80": false, "10.0.0.1:80": false, "127.0.0.1": false, "/run/socket": false,
	} {
		if got := Address(address); got != want {
			t.Errorf("Address(%q) = %v", address, got)
		}
	}
}
