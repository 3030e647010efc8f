package folder

import (
	"runtime"
	"strings"
	"testing"
)

// TestHeaderNamesAFolder reads the values that clients send.
func TestHeaderNamesAFolder(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("the paths are those of UNIX")
	}
	for value, want := range map[string]string{
		"":                          "",
		" ":                         "",
		"${PWD:-}":                  "",
		"${workspaceFolder}":        "",
		"${workspaceFolder}/api":    "",
		"file://${workspaceFolder}": "",
		"$PWD":                      "",
		"{env:PWD}":                 "",
		"%CD%":                      "",
		"/home/u/shop":              "/home/u/shop",
		" /home/u/shop\t":           "/home/u/shop",
		"/home/u/shop/":             "/home/u/shop",
		"/home/u//./shop":           "/home/u/shop",
		"/home/u/my shop":           "/home/u/my shop",
		"/home/u/100%25":            "/home/u/100%25",
		"/home/u/$5":                "/home/u/$5",
		"/home/u/${x}":              "/home/u/${x}",
		"/home/u/a..b":              "/home/u/a..b",
		"/home/u/caf\u00e9":         "/home/u/café",
		"/home/u/caf\xe9":           "/home/u/café",
		"/home/u/caf\u00c3\u00a9":   "/home/u/café",
		"/home/日本":                  "/home/日本",
		"/home/日本é":                 "/home/日本é",
		"file:///home/u/my%20shop":  "/home/u/my shop",
		"file:/home/u/shop":         "/home/u/shop",
		"FILE://LOCALHOST/home/u":   "/home/u",
		"file:///home/u/my shop":    "/home/u/my shop",
		"file:///home/%E6%97%A5":    "/home/日",
		"/":                         "/",
	} {
		if got, err := Header(value); got != want || err != nil {
			t.Errorf("Header(%q) = %q, %v; want %q", value, got, err, want)
		}
	}
}

// TestHeaderRejects names no folder, and says why.
func TestHeaderRejects(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("the paths are those of UNIX")
	}
	for value, why := range map[string]string{
		"shop":                                "relative",
		"./shop":                              "relative",
		"~/shop":                              "relative",
		"/home/u/../v":                        "the part ..",
		"/..":                                 "the part ..",
		"file:///home/u/%2e%2e/v":             "the part ..",
		"file:///home/u/..%2Fv":               "the part ..",
		"/home/\x00u":                         "NUL",
		"file:///home/%00":                    "NUL",
		"file:///home/caf%E9":                 "not UTF-8",
		"https://example.com/shop":            "scheme https",
		"vscode-remote://ssh-remote+h/shop":   "scheme vscode-remote",
		"//server/share":                      "network share",
		`\\server\share`:                      "network share",
		"file://server/share":                 `host "server"`,
		"file:////server/share":               "network share",
		"file://":                             "no path",
		"file:shop":                           "relative",
		"file:///home/u?x":                    "%3F",
		"file:///home/u#x":                    "%23",
		"file:///home/100%":                   "%25",
		`C:\shop`:                             "Windows",
		"file:///C:/shop":                     "Windows",
		"file:///c%3A/shop":                   "Windows",
		"/" + strings.Repeat("a", 1<<20):      "1048577 bytes",
		"file:/" + strings.Repeat("a", 1<<20): "1048582 bytes",
	} {
		got, err := Header(value)
		if got != "" || err == nil || !strings.Contains(err.Error(), why) {
			t.Errorf("Header(%q) = %q, %v; want %q", short(value), got, err, why)
		}
		if err != nil && len(err.Error()) > 400 {
			t.Errorf("Header(%q): the error has %d bytes", short(value), len(err.Error()))
		}
	}
}

// TestHeadersTakesOne shows that two headers are a mistake, also if they are equal.
func TestHeadersTakesOne(t *testing.T) {
	if got, err := Headers(nil); got != "" || err != nil {
		t.Errorf("no header: %q, %v", got, err)
	}
	if got, err := Headers([]string{"${PWD}"}); got != "" || err != nil {
		t.Errorf("one header: %q, %v", got, err)
	}
	if got, err := Headers([]string{"/a", "/a"}); got != "" || err == nil {
		t.Errorf("two headers: %q, %v", got, err)
	}
}

// TestURIOfWindows reads the roots of a client on Windows.
func TestURIOfWindows(t *testing.T) {
	for uri, want := range map[string]string{
		"file:///C:/Users/u/shop":   "C:/Users/u/shop",
		"file:///c%3A/Users/u/shop": "c:/Users/u/shop",
		`file:///C:\Users\u\shop`:   "C:/Users/u/shop",
	} {
		if got, err := fromURI(uri, true); strings.ReplaceAll(got, `\`, "/") != want || err != nil {
			t.Errorf("%s = %q, %v; want %q", uri, got, err, want)
		}
	}
	for uri, why := range map[string]string{
		"file:///home/u":           "relative",
		"file:///C:/shop/a.txt:x":  "colon",
		"file:///C:/Users/u/SSH~1": "short name",
		"file:///C:/shop./x":       "dot or a space",
		"file:///C:/shop/%2e%2e/x": "the part ..",
		`file:///C:/shop/..\x`:     "the part ..",
		"file://server/share":      "host",
		"https://example.com/shop": "scheme file",
		"untitled:Untitled-1":      "scheme file",
		"/home/u":                  "scheme file",
	} {
		if got, err := fromURI(uri, true); got != "" || err == nil || !strings.Contains(err.Error(), why) {
			t.Errorf("%s = %q, %v; want %q", uri, got, err, why)
		}
	}
}

// FuzzHeader shows that a name is absolute, without dot segments, or an error.
func FuzzHeader(f *testing.F) {
	for _, seed := range []string{"/a", "file:///a%2fb", "${X}", "\xe9", "//a", "file:/%2e%2e"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, value string) {
		path, err := Header(value)
		if err != nil && path != "" {
			t.Errorf("Header(%q) has a path and an error", value)
		}
		if again, err := clean(path, runtime.GOOS == "windows"); path != "" && (err != nil || again != path) {
			t.Errorf("Header(%q) = %q, which is no clean path: %v", value, path, err)
		}
	})
}
