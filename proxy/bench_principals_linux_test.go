package proxy

import (
	"net/http"
	"runtime"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/mark3labs/mcp-go/mcp"

	"junction/auth"
)

// spent returns how much time the processors have spent on the process.
func spent(tb testing.TB) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		tb.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// BenchmarkPrincipals is what many principals cost that list all tools, page by page: the memory that they
// keep, and the time of processors that a list takes, with the collection of garbage. The first list is that
// of somebody else's policies, too, as a rule; the very first one compares the policies with the tools.
func BenchmarkPrincipals(b *testing.B) {
	for _, test := range []struct {
		name string
		crowd
	}{
		{"300Keys", keysOfOnePolicy(300, 50, 210)},
		{"10000Users", usersOfGroups(10_000, 500, 50, 200)},
	} {
		b.Run(test.name, func(b *testing.B) {
			s := test.server(b)
			call := `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"up1__read_tool0","arguments":{},` + modernMeta + `}}`
			each := func(n int, f func(p *auth.Principal)) (ms float64) {
				began := spent(b)
				for _, p := range test.principals[:n] {
					f(p)
				}
				return float64(spent(b)-began) / 1e6 / float64(n)
			}
			list := func(p *auth.Principal) { s.listAll(b, p) }
			for b.Loop() {
				s.Refresh()
				before := held()
				b.ReportMetric(float64(before)/1e6, "MB-before")
				b.ReportMetric(each(1, list), "ms/very-first-list")
				b.ReportMetric(each(len(test.principals), list), "ms/first-list")
				all := held() - before
				b.ReportMetric(float64(all)/1e6, "MB-of-all")
				b.ReportMetric(float64(all)/1e3/float64(len(test.principals)), "KB/principal")
				slices.Reverse(test.principals) // the last ones are those that are kept
				b.ReportMetric(each(200, list), "ms/second-list")
				b.ReportMetric(each(200, list), "ms/later-list")
				b.ReportMetric(1000*each(200, func(p *auth.Principal) {
					s.send(&nowhere{header: http.Header{}}, p, call, modernHeader(string(mcp.MethodToolsCall), "up1__read_tool0"))
				}), "µs/call")
				slices.Reverse(test.principals)
			}
			b.ReportMetric(0, "ns/op")
			runtime.KeepAlive(s)
		})
	}
}
