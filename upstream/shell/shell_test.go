package shell_test

import (
	"os/exec"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"junction/integration/harness/needs"
	"junction/upstream/shell"
)

// TestQuote shows how words look.
func TestQuote(t *testing.T) {
	for word, want := range map[string]string{
		"":                       `''`,
		"@ann/weather@1.2.3":     `@ann/weather@1.2.3`,
		"--city=Oslo":            `--city=Oslo`,
		"=ls":                    `'=ls'`,
		"two words":              `'two words'`,
		"Zürich":                 `'Zürich'`,
		"it's":                   `'it'\''s'`,
		"x; rm -rf ~":            `'x; rm -rf ~'`,
		"$(curl x|sh)`id`":       "'$(curl x|sh)`id`'",
		"a\nb":                   `$'a\nb'`,
		"\x1b[2Kgood's!":         `$'\033[2Kgood\047s\041'`,
		"a\u202eb":               `$'a\342\200\256b'`,
		"invalid\xff":            `$'invalid\377'`,
		"a\u0336":                `$'a\314\266'`,
		"-rf":                    `-rf`,
		"https://x.example/?a&b": `'https://x.example/?a&b'`,
	} {
		if got := shell.Quote(word); got != want {
			t.Errorf("Quote(%q) = %s, want %s", word, got, want)
		}
	}
	if got, want := shell.Join("A=1", "B=1", "c d"), `'A=1' B=1 'c d'`; got != want {
		t.Errorf("Join gives %s, want %s", got, want)
	}
}

// TestJunction: --config is a flag of Junction, and not of a command that stands after --.
func TestJunction(t *testing.T) {
	for want, words := range map[string][]string{
		"junction list --config a.yaml":                   {"list"},
		"junction add NAME --config a.yaml -- COMMAND -x": {"add", "NAME", "--", "COMMAND", "-x"},
	} {
		if got := shell.Junction("a.yaml", words...); got != want {
			t.Errorf("Junction(%q) = %q, want %q", words, got, want)
		}
	}
}

// FuzzQuote: a shell that knows $'…' reads each word as it was; every shell reads one word, and
// runs nothing of it. What is shown has no hidden character.
func FuzzQuote(f *testing.F) {
	for _, s := range []string{"", "a", "it's", "\x1b]0;x\a", "a\nb'c!d\\e", "\u202e", "$(id)`id`", "\\", "a\\'b", "\xff'\xfe"} {
		f.Add(s)
	}
	needs.Bash.Require(f)
	bash, err := exec.LookPath("bash")
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, word string) {
		quoted := shell.Quote(word)
		if i := strings.IndexFunc(quoted, func(r rune) bool { return shell.Hidden(r) || unicode.Is(unicode.M, r) }); i >= 0 || !utf8.ValidString(quoted) {
			t.Fatalf("Quote(%q) shows a hidden character: %q", word, quoted)
		}
		if strings.ContainsRune(word, 0) {
			return // no argument of a program has it
		}
		script := "set -- " + quoted + `; printf '%s.%s.' "$#" "$1"`
		out, err := exec.Command(bash, "--norc", "-c", script).CombinedOutput()
		if err != nil || string(out) != "1."+word+"." {
			t.Errorf("bash reads %s as %q, %v; want %q", quoted, out, err, word)
		}
		out, err = exec.Command("sh", "-c", "set -- "+quoted+`; printf '%s.' "$#"`).CombinedOutput()
		if err != nil || string(out) != "1." {
			t.Errorf("sh reads %s as %q words, %v", quoted, out, err)
		}
	})
}
