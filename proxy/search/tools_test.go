package search

import (
	"strings"
	"testing"

	"junction/upstream/raw"
)

// TestClassOf: a tool has the class that is least trusted, unless its annotations say otherwise, once
// and as booleans.
func TestClassOf(t *testing.T) {
	for definition, want := range map[string]Class{
		`{}`:                                    Destructive,
		`{"annotations":{}}`:                    Destructive,
		`{"annotations":true}`:                  Destructive,
		`{"annotations":{"readOnlyHint":true}}`: Read,
		`{"annotations":{"readOnlyHint":true,"destructiveHint":true}}`:                  Read,
		`{"annotations":{"readOnlyHint":"true"}}`:                                       Destructive,
		`{"annotations":{"readOnlyHint":false}}`:                                        Destructive,
		`{"annotations":{"readOnlyHint":true,"readOnlyHint":false}}`:                    Destructive,
		`{"annotations":{"readOnlyHint":true},"annotations":{}}`:                        Destructive,
		`{"annotations":{"destructiveHint":false}}`:                                     Write,
		`{"annotations":{"readOnlyHint":false,"destructiveHint":false}}`:                Write,
		`{"annotations":{"destructiveHint":0}}`:                                         Destructive,
		`{"annotations":{"destructiveHint":false,"destructiveHint":true}}`:              Destructive,
		`{"readOnlyHint":true,"destructiveHint":false,"annotations":{"title":"reads"}}`: Destructive,
	} {
		if got := ClassOf(mustTool(t, "t", definition).Definition); got != want {
			t.Errorf("the class of %s is %d, want %d", definition, got, want)
		}
	}
}

// TestInner: a call tool takes a name and arguments, each once, and nothing else.
func TestInner(t *testing.T) {
	for outer, ok := range map[string]bool{
		`{"name":"a","arguments":{"x":1}}`: true, `{"name":"a"}`: true,
		`{}`: false, `{"name":7}`: false, `{"name":"a","arguments":"{}"}`: false, `{"name":"a","x":1}`: false,
		`{"name":"a","name":"b"}`: false, `{"name":"a","arguments":{},"arguments":{}}`: false,
		`{"name":"a","\u006eame":"b"}`: false,
	} {
		o, err := raw.Parse([]byte(outer))
		if err != nil {
			t.Fatal(err)
		}
		if _, _, err := Inner(Read, o); (err == nil) != ok {
			t.Errorf("%s: %v", outer, err)
		}
	}
}

// TestAnswerIsBounded: the first definition is complete, and all together are not much longer.
func TestAnswerIsBounded(t *testing.T) {
	var a Answer
	large := []byte(`"` + strings.Repeat("x", 400<<10) + `"`)
	if !a.Add(Read, large) || a.Add(Read, large) || !a.Add(Read, []byte(`{}`)) {
		t.Errorf("an answer has %d bytes", len(a.tools))
	}
}
