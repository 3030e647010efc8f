package approval

import (
	"fmt"
	"strings"
	"testing"
)

// TestShownArguments has arguments that would like to hide another one.
func TestShownArguments(t *testing.T) {
	long := strings.Repeat("x", 5000)
	for _, test := range []struct{ text, want string }{
		{`{ "a":1,"b":"\u202e" }`, `{ "a":1,"b":"\u202e" }`},
		{"{\"a\":\"\u202e\",\n\"b\":1}", `{"a":"\u202e",\u000a"b":1}`},
		{`{"note":"` + long + `","command":"rm -rf /"}`, `{"note":"` + long[:999] + ` … (4002 more bytes are not shown),"command":"rm -rf /"}`},
		{`{"command":"rm -rf /","note":"` + long + `"}`, `{"command":"rm -rf /","note":"` + long[:999] + ` … (4002 more bytes are not shown)}`},
		{`{"` + long + `":1,"command":"rm -rf /"}`, `{"` + long[:59] + ` … (4942 more bytes are not shown):1,"command":"rm -rf /"}`},
	} {
		if got := shownArguments([]byte(test.text)); got != test.want {
			t.Errorf("%.60s is shown as %s\nwant %s", test.text, got, test.want)
		}
	}
	many := "{"
	for i := range 1000 {
		many += fmt.Sprintf(`"a%d":1,`, i)
	}
	if got := shownArguments([]byte(many + `"command":"rm -rf /"}`)); len(got) > 3*maxShown || !strings.HasSuffix(got, "more arguments are not shown)}") {
		t.Errorf("a thousand arguments are shown as %s", got)
	}
}
