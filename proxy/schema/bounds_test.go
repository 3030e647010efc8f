package schema

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"
)

// TestLongNamesInProblems has alternatives whose every problem names a member of a megabyte. The
// problems are shortened without a copy of the name.
func TestLongNamesInProblems(t *testing.T) {
	forms, length := 32, 150_000
	if testing.Short() { // with the race detector, on a loaded machine
		forms, length = 12, length/4
	}
	var inner []string
	for i := range forms {
		inner = append(inner, fmt.Sprintf(`{"additionalProperties":{"enum":[%d]}}`, i+5))
	}
	form := `{"anyOf":[` + strings.Join(inner, ",") + `]}`
	definition := definitionOf(`{"anyOf":[` + strings.Repeat(form+",", forms-1) + form + `]}`)
	arguments := mustArguments(t, `{"`+strings.Repeat(`a\u0062`, length)+`":1}`)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	if _, err := new(Validator).Check(ctx, definition, arguments, nil); ctx.Err() != nil {
		t.Errorf("the check of a name of a megabyte: %v", err)
	}
}

// TestCompiledSchemasAreBounded keeps schemas whose compiled form has 300 times their size.
func TestCompiledSchemasAreBounded(t *testing.T) {
	var v Validator
	empties := `{"allOf":[` + strings.Repeat("{},", 4000) + `{}]}`
	for i := range 300 {
		v.schema([]byte(fmt.Sprintf(`{"name":"t%d","inputSchema":%s}`, i, empties)))
	}
	if n := len(v.schemas); n*4000*800 > mostSchemaBytes {
		t.Errorf("%d schemas of 4000 subschemas are kept", n)
	}
}

// TestNamesAreCompared has names in all spellings. The order and the equality are those of the names
// without escapes.
func TestNamesAreCompared(t *testing.T) {
	written := []string{`a`, `\u0061`, `ab`, `a\u0062`, `\u0061\u00e4`, `aä`, `\n`, `\/`, `/`, `\"`, `\\`, `\ud83d\ude00`, `😀`,
		`\ud83d`, `\ud83dx`, `\ude00\ud83d`, "\xff", "a\xffb", `\ufffd`, ``, `\b\f\r\t`, `\uffff`}
	for _, x := range written {
		for _, y := range written {
			v, err := parse([]byte(`[{"` + x + `":1},{"` + y + `":1}]`))
			if err != nil {
				t.Fatal(err)
			}
			a, b := v.nameOf(2), v.nameOf(4)
			want := strings.Compare(a, b)
			if got := v.compareNames(2, 4); got != want || v.compareName(2, b) != want || v.named(2, b) != (a == b) {
				t.Errorf("%s and %s: %d, %d, want %d", x, y, got, v.compareName(2, b), want)
			}
		}
	}
}
