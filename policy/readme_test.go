package policy_test

import (
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"

	"gopkg.in/yaml.v3"

	"junction/policy"
)

// TestTheExampleOfFourRolesDoesWhatItSays evaluates the policies of README.md: nobody deletes, also through an
// allow of whole servers, and each role has what the text says.
func TestTheExampleOfFourRolesDoesWhatItSays(t *testing.T) {
	text, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	found := regexp.MustCompile("(?s)\\*\\*A team with keys and four roles\\.\\*\\*.*?```yaml\n(.*?)```").FindSubmatch(text)
	if found == nil {
		t.Fatal("README.md has no example of four roles")
	}
	var file struct {
		Policies policy.Config `yaml:"policies"`
	}
	if err := yaml.Unmarshal(found[1], &file); err != nil {
		t.Fatal(err)
	}
	p, err := policy.Compile(file.Policies)
	if err != nil {
		t.Fatal(err)
	}
	may := map[string]string{ // the keys that have the tool
		"files__read_text_file":   "ann ben ci max cora",
		"files__write_file":       "ann ben max",
		"files__delete_file":      "",
		"memory__read_graph":      "ann ben ci max cora",
		"memory__delete_entities": "",
		"github__get_issue":       "ann ben",
		"github__delete_branch":   "",
	}
	for tool, keys := range may {
		it := mustItem(t, "tool "+tool)
		it.Hints = policy.HintsOf(mustParse(t, fmt.Sprintf(`{"annotations": {"readOnlyHint": %v}}`,
			strings.Contains(tool, "__read_"))))
		for _, key := range strings.Fields("ann ben ci max cora") {
			want := strings.Contains(" "+keys+" ", " "+key+" ")
			if got := p.For(policy.Subject{Kind: "key", Key: key}).Bind(it).Visible(); got != want {
				t.Errorf("%s has %s: %v, want %v", key, tool, got, want)
			}
		}
	}
}
