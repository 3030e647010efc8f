// Package telemetry measures a running proxy with OpenTelemetry: metrics and traces of calls, and
// the state of upstreams, clients, the store and the process.
//
//	telemetry.go     Telemetry: what is on, and its start and end
//	names.go         every name of a metric, an attribute and a span
//	requests.go      the requests of clients, and the questions to them: front.Observer
//	calls.go         the requests to and from upstreams: client.Observer
//	spans.go         what the spans of both share
//	sampling.go      which traces are recorded
//	series.go        the durations of requests and calls, of a bounded number of series
//	produce.go       histograms and counters of calls, as OpenTelemetry exports them
//	traceparent.go   W3C Trace Context of a request
//	counters.go      events: refused requests, tokens, connections, operations of the storage
//	state.go         instruments that are read at each scrape and export; those of upstreams, sessions, queues
//	process.go       memory, goroutines and descriptors
//	expose.go        /metrics, in the text format of Prometheus
//	replicas.go      figures of package replicas
//	export.go        OTLP, by the standard variables OTEL_*
//
// Package otlp sends spans, metrics and lines of the audit over HTTP. It exists because the
// exporters of OpenTelemetry bring gRPC with them, which is as large as the rest of Junction's
// dependencies.
//
// Names follow the semantic conventions of OpenTelemetry for MCP, which are in development
// (open-telemetry/semantic-conventions-genai, docs/gen-ai/mcp.md). Names that they do not have
// begin with junction.
//
// # Cost
//
// The metrics of a call allocate nothing (bench_test.go): calls record into our own histograms and
// counters, and the SDK of OpenTelemetry reads those by its interface Producer. An attribute has only
// values from the configuration, the catalogs, or a fixed list: never a principal, a session, an
// address, or a name that only a client has sent.
package telemetry
