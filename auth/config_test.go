package auth_test

import (
	"slices"
	"testing"

	"junction/auth"
)

func TestCIDR(t *testing.T) {
	for _, test := range []struct{ text, want, problem string }{
		{"10.0.0.0/8", "10.0.0.0/8", ""},
		{"2001:db8::/32", "2001:db8::/32", ""},
		{"0.0.0.0/0", "0.0.0.0/0", ""},
		{"10.1.2.3", "", "must be a network; write 10.1.2.3/32 for this one address"},
		{"::1", "", "must be a network; write ::1/128 for this one address"},
		{"::ffff:10.1.2.3", "", "must be a network; write 10.1.2.3/32 for this one address"},
		{"fe80::1%eth0", "", "must be a network, such as 10.0.0.0/8 or 2001:db8::/32"},
		{"10.1.2.3/8", "", "the address has bits set after the first 8; write 10.0.0.0/8"},
		{"::ffff:10.0.0.0/104", "", "must be an IPv4 network in IPv4 notation; write 10.0.0.0/8"},
		{"::ffff:0.0.0.0/64", "", "must be a network, such as 10.0.0.0/8 or 2001:db8::/32"},
		{"10.0.0.0/33", "", "must be a network, such as 10.0.0.0/8 or 2001:db8::/32"},
		{"10.0.0/8", "", "must be a network, such as 10.0.0.0/8 or 2001:db8::/32"},
		{"example.com/8", "", "must be a network, such as 10.0.0.0/8 or 2001:db8::/32"},
		{"", "", "must be a network, such as 10.0.0.0/8 or 2001:db8::/32"},
	} {
		var c auth.CIDR
		err := c.UnmarshalText([]byte(test.text))
		if test.problem == "" && (err != nil || c.String() != test.want) || test.problem != "" &&
			(err == nil || err.Error() != test.problem) {
			t.Errorf("%q: got %s, %v; want %s%s", test.text, c, err, test.want, test.problem)
		}
	}
}

func TestMoment(t *testing.T) {
	for _, test := range []struct{ text, want string }{
		{"2027-06-30", "2027-07-01T00:00:00Z"},
		{"2027-12-31", "2028-01-01T00:00:00Z"},
		{"2027-06-30T12:00:00Z", "2027-06-30T12:00:00Z"},
		{"2027-06-30T12:00:00+02:00", "2027-06-30T10:00:00Z"},
		{"2027-02-30", ""}, {"2027-06-30 12:00:00", ""}, {"30.6.2027", ""}, {"90d", ""}, {"", ""}, {"never", ""},
	} {
		var m auth.Moment
		err := m.UnmarshalText([]byte(test.text))
		if test.want == "" && err == nil || test.want != "" && (err != nil || m.String() != test.want) {
			t.Errorf("%q: got %s, %v; want %q", test.text, m, err, test.want)
		}
	}
}

func TestValidate(t *testing.T) {
	a, b := mustHash(t, auth.NewKey()), mustHash(t, auth.NewKey())
	c := auth.Config{
		APIKeys: []auth.Key{
			{Name: "ci", Hash: a}, {Name: "ci", Hash: b}, // a rotation
			{Name: "ci", Hash: a}, {Name: "ops", Hash: b}, {}, {Name: "no spaces"},
			{Name: "füße", Hash: mustHash(t, auth.NewKey())},
		},
		TrustedProxies: cidrs(t, "10.0.0.0/8", "0.0.0.0/0", "::/0"),
	}
	var got []string
	for _, p := range c.Validate() {
		got = append(got, p.Path+": "+p.Text)
	}
	want := []string{
		"api_keys[2]: is a duplicate of api_keys[0]; remove one of the two",
		"api_keys[3].hash: is also the hash of api_keys[1]; give each holder a key of their own",
		"api_keys[4].name: is missing; name the holder of the key, such as ci",
		"api_keys[4].hash: is missing; get it from junction keys create for a new key, or from junction keys " +
			"hash for an existing one",
		"api_keys[5].name: must be 1 to 64 of A-Z, a-z, 0-9 and . _ - @, such as ci",
		"api_keys[5].hash: is missing; get it from junction keys create for a new key, or from junction keys " +
			"hash for an existing one",
		"api_keys[6].name: must be 1 to 64 of A-Z, a-z, 0-9 and . _ - @, such as ci",
		"trusted_proxies[1]: would trust every client to set its own address; name the addresses of your proxies",
		"trusted_proxies[2]: would trust every client to set its own address; name the addresses of your proxies",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
	if p := (&auth.Config{}).Validate(); p != nil {
		t.Errorf("an empty section has mistakes: %v", p)
	}
}

// TestConfigGuard: with keys the guard requires one; without keys it accepts every request.
func TestConfigGuard(t *testing.T) {
	key := auth.NewKey()
	c := auth.Config{APIKeys: []auth.Key{{Name: "ci", Hash: mustHash(t, key)}},
		TrustedProxies: cidrs(t, "127.0.0.1/32")}
	g := c.Guard(nil, "", nil)
	if p, _ := ask(t, g, "POST", "/mcp", nil); p != nil {
		t.Errorf("a request without a key is let in as %s", p.ID)
	}
	header := authorization("Bearer " + key)
	header["X-Forwarded-For"] = []string{"203.0.113.7"}
	if p, _ := ask(t, g, "POST", "/mcp", header); p == nil || p.ID != "key:ci" || p.Address.String() != "203.0.113.7" {
		t.Errorf("the key through the proxy gives %+v", p)
	}
	if p, _ := ask(t, (&auth.Config{}).Guard(nil, "", nil), "POST", "/mcp", nil); p != auth.Local {
		t.Errorf("without keys a local request gives %+v", p)
	}
}

// TestConfigServers: which settings require a token, and which cause a warning.
func TestConfigServers(t *testing.T) {
	issuer := auth.Issuer{TokenRules: auth.TokenRules{Issuer: "https://login.example.com",
		Audiences: []string{"https://mcp.example.com/mcp", "https://MCP.example.com/web/mcp/", "api://x",
			"https://other.example.com/api", "https://other.example.com/mcp"}}}
	c := auth.Config{JWT: []auth.Issuer{issuer}}
	if p := c.Validate(); p != nil || !c.SignsIn() || !c.Needed() {
		t.Errorf("an issuer: %v, signs in %v, needed %v", p, c.SignsIn(), c.Needed())
	}
	if p := c.Warnings("https://mcp.example.com"); len(p) != 1 || p[0].Path != "jwt[0].audiences[4]" {
		t.Errorf("the warnings are %v", p)
	}
	if p := c.Warnings(""); len(p) != 3 {
		t.Errorf("without a public URL the warnings are %v", p)
	}
	keys := auth.Config{APIKeys: []auth.Key{{}}}
	if (&auth.Config{}).Needed() || !keys.Needed() || keys.SignsIn() {
		t.Error("keys are no sign-in, and nothing needs nothing")
	}
}
