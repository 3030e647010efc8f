package front

import (
	"net/http"
	"runtime"
	"syscall"
	"testing"
	"time"

	"github.com/mark3labs/mcp-go/mcp"

	"junction/auth"
	"junction/proxy"
	"junction/proxy/proxytest"
)

// spent returns how much time the processors have spent on the process.
func spent(tb testing.TB) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		tb.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// BenchmarkPrincipals is what many principals cost that list all tools, page by page: the memory
// that they keep, and the time of processors that a list takes, with the collection of garbage. The
// first list is that of somebody else's policies, too, as a rule; the very first one compares the
// policies with the tools.
func BenchmarkPrincipals(b *testing.B) {
	for _, test := range []struct {
		name string
		proxytest.Crowd
	}{
		{"300Keys", proxytest.KeysOfOnePolicy(300, 50, 210)}, // the case of issue 13
		{"10000Users", proxytest.UsersOfGroups(10_000, 500, 50, 200)},
	} {
		b.Run(test.name, func(b *testing.B) {
			s := serverOf(b, &test.Crowd, proxy.Limits{})
			const name = "up1__read_tool0"
			call := `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"` + name + `",` + modernMeta + `}}`
			each := func(from, to int, f func(p *auth.Principal)) (ms float64) {
				began := spent(b)
				for _, p := range test.Principals[from:to] {
					f(p)
				}
				return float64(spent(b)-began) / 1e6 / float64(to-from)
			}
			list := func(p *auth.Principal) { s.listAll(b, p) }
			callOne := func(p *auth.Principal) {
				s.send(&nowhere{header: http.Header{}}, p, call, modernHeader(string(mcp.MethodToolsCall), name))
			}
			for b.Loop() {
				s.Refresh()
				few, many := 100, len(test.Principals)
				none := proxytest.MemoryInUse()
				b.ReportMetric(each(0, 1, list), "ms/very-first-list")
				b.ReportMetric(each(1, few, list), "ms/first-list")
				some := proxytest.MemoryInUse()
				b.ReportMetric(each(few, many, list), "ms/first-list")
				most := proxytest.MemoryInUse()
				perPrincipal := float64(most-some) / float64(many-few)
				b.ReportMetric(perPrincipal/1e3, "KB/principal")
				b.ReportMetric(each(many-200, many, list), "ms/second-list")
				b.ReportMetric(each(many-200, many, list), "ms/later-list")
				b.ReportMetric(1000*each(many-200, many, callOne), "µs/call")
				all := proxytest.MemoryInUse() - none
				b.ReportMetric(float64(none)/1e6, "MB-before")
				b.ReportMetric(float64(all)/1e6, "MB-of-all")
				if perPrincipal > 4000 || all > 64<<20 {
					b.Errorf("a principal takes %.0f bytes, and all take %d; want 4000 and 64 MiB at most", perPrincipal, all)
				}
			}
			b.ReportMetric(0, "ns/op")
			runtime.KeepAlive(s)
			runtime.KeepAlive(test.Policies)
		})
	}
}
