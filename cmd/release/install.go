package main

import (
	"bytes"
	_ "embed"
	"regexp"
	"strings"
	"text/template"
)

//go:embed install.sh.tmpl
var installTemplate string

// shellWord matches the values that installScript puts into the script without quotes.
var shellWord = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._+~-]*$`)

// baseURL matches the addresses that may be in the script, between double quotes.
var baseURL = regexp.MustCompile(`^https?://[A-Za-z0-9._~:/%@+-]+$`)

// machines has, by system and processor of Go, how uname names them, as patterns of a shell.
var machines = map[string]string{
	"linux/amd64":  "Linux/x86_64 | Linux/amd64",
	"linux/arm64":  "Linux/aarch64 | Linux/arm64",
	"darwin/amd64": "Darwin/x86_64",
	"darwin/arm64": "Darwin/arm64",
}

// installScript returns the script that installs one of the archives. It has their checksums inside,
// because checksums from the server of the archives prove nothing.
func installScript(version, from string, built []platform) ([]byte, error) {
	type archive struct {
		Pattern, Archive, Sum string
		Size                  int
	}
	values := struct {
		Version, URL string
		Archives     []archive
	}{Version: version, URL: from}
	words := []string{version}
	for _, p := range built {
		if pattern, ok := machines[p.os+"/"+p.arch]; ok {
			values.Archives = append(values.Archives, archive{pattern, p.archive, p.sum, p.size})
			words = append(words, p.archive)
		}
	}
	for _, word := range words {
		if !shellWord.MatchString(word) {
			return nil, notInScript(word)
		}
	}
	if !baseURL.MatchString(from) {
		return nil, notInScript(from)
	}
	parsed, err := template.New("install.sh").Parse(installTemplate)
	if err != nil {
		return nil, err
	}
	var b bytes.Buffer
	err = parsed.Execute(&b, values)
	return b.Bytes(), err
}

// notInScript is the error for a value that a shell might read as more than a word.
type notInScript string

func (n notInScript) Error() string {
	return "a release cannot contain \"" + strings.ToValidUTF8(string(n), "?") +
		"\"; use letters, digits and . _ ~ : / % @ + -"
}
