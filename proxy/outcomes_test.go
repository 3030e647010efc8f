package proxy

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"junction/upstream"
	"junction/upstream/client"
)

// mustRead returns the text of a file.
func mustRead(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// constantsOf returns the values of the constants of a type in the text of a file.
func constantsOf(text, of string) (values []string) {
	for _, m := range regexp.MustCompile(`(?m)^\t\w+ +`+of+` = "(\w+)"`).FindAllStringSubmatch(text, -1) {
		values = append(values, m[1])
	}
	return values
}

// wordsOf returns words of a type as texts.
func wordsOf[W ~string](list []W) (words []string) {
	for _, w := range list {
		words = append(words, string(w))
	}
	return words
}

// TestTheTableOfOutcomesIsComplete: each outcome has a row, and each kind of failure is in one row.
func TestTheTableOfOutcomesIsComplete(t *testing.T) {
	for _, list := range []struct {
		file, of string
		words    []string
	}{
		{"outcome.go", "Outcome", wordsOf(Outcomes())},
		{"../upstream/client/call.go", "Kind", wordsOf(client.Kinds())},
	} {
		if declared := constantsOf(mustRead(t, list.file), list.of); !slices.Equal(declared, list.words) {
			t.Errorf("%s declares the words %q of %s, and its table has %q", list.file, declared, list.of, list.words)
		}
	}
	rows := map[client.Kind]int{}
	for _, row := range outcomes {
		if row.Fails == "" {
			t.Errorf("the row of the outcome %s does not say which calls fail", row.Outcome)
		}
		for _, kind := range row.Kinds {
			rows[kind]++
		}
	}
	for _, kind := range client.Kinds() {
		if rows[kind] != 1 {
			t.Errorf("the failure %s is in %d rows of the table of outcomes, want 1", kind, rows[kind])
		}
	}
}

// TestCallsThatALimitEndsHaveAnOutcomeOfTheirOwn: the kind of error of a limit leads to another outcome than error, so
// that an operator finds the limit.
func TestCallsThatALimitEndsHaveAnOutcomeOfTheirOwn(t *testing.T) {
	for _, row := range upstream.Limits() {
		if row.Ends != "" && OutcomeOf(row.Ends) == Error {
			t.Errorf("the limit %s ends calls with the kind %s, whose outcome is error: name another kind in the tag limit, such "+
				"as %s, or give the kind a row of its own in the table of outcomes", row.Key, row.Ends, client.KindBusy)
		}
	}
}

// TestDocumentsHaveEachOutcome: the audit's table has the outcomes in the order of the rows, the alert JunctionCallsFail
// counts those that fail, and the runbook has an item for each of these, which names the limits that lead to it, and a
// sentence with the others.
func TestDocumentsHaveEachOutcome(t *testing.T) {
	const operators = "../cmd/junction/"
	_, table, _ := strings.Cut(mustRead(t, operators+"ops/audit/README.md"), "\n| `outcome` | the call |\n")
	table, _, _ = strings.Cut(table, "\n\n")
	var listed []string
	for _, m := range regexp.MustCompile("(?m)^\\| `(\\w+)` \\| \\w").FindAllStringSubmatch(table, -1) {
		listed = append(listed, m[1])
	}
	if !slices.Equal(listed, wordsOf(Outcomes())) {
		t.Errorf("the table of outcomes in ops/audit/README.md has %q, want %q", listed, Outcomes())
	}
	_, alert, _ := strings.Cut(mustRead(t, operators+"deploy/alerts.yaml"), "- alert: JunctionCallsFail\n")
	alert, _, _ = strings.Cut(alert, "- alert:")
	_, section, _ := strings.Cut(mustRead(t, operators+"deploy/RUNBOOK.md"), "\n## JunctionCallsFail\n")
	section, _, _ = strings.Cut(section, "\n## ")
	items := map[string]string{}
	for _, m := range regexp.MustCompile("(?m)^- `(\\w+)`[^:]*:((?:.*\n)(?:  .*\n)*)").FindAllStringSubmatch(section, -1) {
		items[m[1]] = m[2]
	}
	_, others, _ := strings.Cut(section, "\nNot counted are ")
	var always, only, never []string
	for _, row := range outcomes {
		word := string(row.Outcome)
		switch row.Fails {
		case AlwaysFails:
			always = append(always, word)
		case ServerFails:
			only = append(only, word)
		case NeverFails:
			never = append(never, word)
			if !strings.Contains(others, "`"+word+"`") {
				t.Errorf("JunctionCallsFail in RUNBOOK.md does not say that calls with the outcome `%s` are not counted", word)
			}
			continue
		}
		if items[word] == "" {
			t.Errorf("JunctionCallsFail in RUNBOOK.md has no item about the outcome `%s`", word)
		}
	}
	counted := regexp.MustCompile(`junction_outcome=~?"([a-z_|]+)"`).FindAllStringSubmatch(alert, -1)
	if len(counted) != 2 || !sameWords(counted[0][1], always) || !sameWords(counted[1][1], only) {
		t.Errorf("the alert JunctionCallsFail counts %q, want %q of all requests and %q of those for an upstream", counted, always, only)
	}
	for word := range items {
		if slices.Contains(never, word) || !slices.Contains(Outcomes(), Outcome(word)) {
			t.Errorf("JunctionCallsFail in RUNBOOK.md has an item about `%s`, which the alert does not count", word)
		}
	}
	for _, row := range upstream.Limits() {
		if word := string(OutcomeOf(row.Ends)); row.Ends != "" && !strings.Contains(items[word], "`"+row.Key+"`") {
			t.Errorf("the item `%s` of JunctionCallsFail in RUNBOOK.md does not name the limit `%s`, whose error has the kind %s",
				word, row.Key, row.Ends)
		}
	}
}

// sameWords reports whether a text with | between its words has these words.
func sameWords(text string, words []string) bool {
	got := strings.Split(text, "|")
	slices.Sort(got)
	return slices.Equal(got, slices.Sorted(slices.Values(words)))
}
