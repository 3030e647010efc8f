// Package otelx stands for the package of that name in github.com/ory/x, as far as fosite uses it: see go.mod.
package otelx

// End ends a span. The original writes the error into it, if there is one; here nobody reads spans.
func End[S interface{ End(...O) }, O any](span S, _ *error) { span.End() }
