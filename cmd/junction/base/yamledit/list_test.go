package yamledit

import "testing"

// TestAppend: the element comes last, and every other byte stays.
func TestAppend(t *testing.T) {
	for _, test := range []struct{ name, text, want string }{
		{"empty", "", "auth:\n  keys:\n    - { n: 1 }\n"},
		{"only comments", "# a\n", "# a\n\nauth:\n  keys:\n    - { n: 1 }\n"},
		{"no section", "# a\nb: 1\n", "# a\nb: 1\n\nauth:\n  keys:\n    - { n: 1 }\n"},
		{"no list", "auth:\n  none: false # x\nb: 1\n", "auth:\n  none: false # x\n  keys:\n    - { n: 1 }\nb: 1\n"},
		{"list", "auth:\n  keys:\n  # first\n  - { n: 0 }\n\n  other: 1\n", "auth:\n  keys:\n  # first\n  - { n: 0 }\n  - { n: 1 }\n\n  other: 1\n"},
		{"elements of several lines", "auth:\r\n  keys:\r\n    - n: 0\r\n      m: 0\r\n# end\r\nb: 1\r\n",
			"auth:\r\n  keys:\r\n    - n: 0\r\n      m: 0\r\n    - { n: 1 }\r\n# end\r\nb: 1\r\n"},
		{"last line without end", "auth:\n  keys:\n    - { n: 0 }", "auth:\n  keys:\n    - { n: 0 }\n    - { n: 1 }\n"},
		{"flow", "auth: { keys: [{ n: 0 }] } # x\n", "auth: { keys: [{ n: 1 }, { n: 0 }] } # x\n"},
		{"empty flow", "auth:\n  keys: []\n", "auth:\n  keys:\n    - { n: 1 }\n"},
		{"empty flow, then others", "auth:\r\n  keys: [ ] # none yet\r\n\r\n  # x\r\n  other: 1\r\n",
			"auth:\r\n  keys: # none yet\r\n    - { n: 1 }\r\n\r\n  # x\r\n  other: 1\r\n"},
		{"empty flow at the end", "auth:\n  keys: []", "auth:\n  keys:\n    - { n: 1 }\n"},
		{"empty flow in flow", "auth: { keys: [] }\n", "auth: { keys: [{ n: 1 }] }\n"},
		{"empty flow of lines", "auth:\n  keys: [\n  ]\n", "auth:\n  keys: [{ n: 1 }\n  ]\n"},
		{"empty flow below its key", "auth:\n  keys:\n    []\n", "auth:\n  keys:\n    [{ n: 1 }]\n"},
		{"null", "auth:\n  keys:\nb: 1\n", "auth:\n  keys:\n    - { n: 1 }\nb: 1\n"},
		{"no list at all", "auth:\n  keys: 3\n", ""},
		{"no mapping", "- a\n", ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			got, err := Append([]byte(test.text), "auth", "keys", "{ n: 1 }")
			if string(got) != test.want || (err != nil) != (test.want == "") {
				t.Errorf("Append gives %v\n%s\nwant\n%s", err, got, test.want)
			}
		})
	}
}

// TestRemoveElement: the element goes with its comment, and every other byte stays.
func TestRemoveElement(t *testing.T) {
	for _, test := range []struct {
		name, text string
		index      int
		want       string
	}{
		{"first", "auth:\n  keys:\n    - { n: 0 }\n    - { n: 1 }\n", 0, "auth:\n  keys:\n    - { n: 1 }\n"},
		{"last", "auth:\n  keys:\n    - { n: 0 }\n    # one\n    - { n: 1 } # x\n\n# b\nb: 1\n", 1, "auth:\n  keys:\n    - { n: 0 }\n\n# b\nb: 1\n"},
		{"middle of several lines", "auth:\n  keys:\n  - n: 0\n  - n: 1\n    # inner\n    m: 1\n    # end\n  # two\n  - n: 2\n  other: 1\n", 1,
			"auth:\n  keys:\n  - n: 0\n  # two\n  - n: 2\n  other: 1\n"},
		{"the only one", "auth:\n  keys:\n    - { n: 0 }\n", 0, ""},
		{"flow", "auth: { keys: [{ n: 0 }, { n: 1 }] }\n", 0, "auth: { keys: [{ n: 1 }] }\n"},
		{"last of flow", "auth: { keys: [{ n: 0 }, { n: '}, ]' }] } # x\n", 1, "auth: { keys: [{ n: 0 }] } # x\n"},
		{"dash on a line of its own", "auth:\n  keys:\n    - { n: 0 }\n    -\n      n: 1\n", 1, ""},
		{"no such element", "auth:\n  keys:\n    - { n: 0 }\n    - { n: 1 }\n", 2, ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			got, err := RemoveElement([]byte(test.text), "auth", "keys", test.index)
			if string(got) != test.want || (err != nil) != (test.want == "") {
				t.Errorf("RemoveElement gives %v\n%s\nwant\n%s", err, got, test.want)
			}
		})
	}
}
