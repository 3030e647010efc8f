package listeners

import (
	"os"
	"strconv"
	"strings"
	"testing"
)

// TestNoSocketIsInherited: variables for another process, or without sockets, are no socket of this one.
func TestNoSocketIsInherited(t *testing.T) {
	for _, variables := range []map[string]string{
		{}, {"LISTEN_PID": "1", "LISTEN_FDS": "1"}, {"LISTEN_PID": strconv.Itoa(os.Getpid()), "LISTEN_FDS": "0"},
		{"LISTEN_PID": strconv.Itoa(os.Getpid())},
	} {
		getenv := func(name string) (string, bool) { value, ok := variables[name]; return value, ok }
		if l, err := Inherited(getenv, "tls.listen", ":443", true); l != nil || err != nil {
			t.Errorf("%v: %v, %v", variables, l, err)
		}
	}
	several := map[string]string{"LISTEN_PID": strconv.Itoa(os.Getpid()), "LISTEN_FDS": "2", "LISTEN_FDNAMES": "http:admin"}
	getenv := func(name string) (string, bool) { value, ok := several[name]; return value, ok }
	if l, err := Inherited(getenv, "tls.listen", ":443", true); l != nil || err == nil || !strings.Contains(err.Error(), "FileDescriptorName=tls") {
		t.Errorf("two sockets with other names: %v, %v", l, err)
	}
	for _, names := range []string{"tls", "listen:tls", "tls:listen"} { // the other key has none, or another one
		several["LISTEN_FDS"], several["LISTEN_FDNAMES"] = "1", names
		key := "listen"
		if strings.HasPrefix(names, "listen") {
			key = "tls.listen"
		}
		if l, err := Inherited(getenv, key, ":443", true); l != nil || err != nil {
			t.Errorf("%s for %s: %v, %v", names, key, l, err)
		}
	}
}
