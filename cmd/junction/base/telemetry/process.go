package telemetry

import (
	"context"
	"runtime/metrics"
	"time"

	"go.opentelemetry.io/otel/metric"
)

// Samples of the Go runtime.
const (
	goroutines = "/sched/goroutines:goroutines"
	goMemory   = "/memory/classes/total:bytes"
	released   = "/memory/classes/heap/released:bytes"
)

// Values that the operating system may not have.
const (
	residentMemory = "process.memory.usage"
	openFiles      = "junction.descriptors.open"
	mostFiles      = "junction.descriptors.limit"
)

var processGauges = []instrument{
	{"junction.goroutines", "", "Goroutines."},
	{"go.memory.used", "By", "Memory that the Go runtime uses, without what it gave back."},
	{residentMemory, "By", "Physical memory of the process."},
	{openFiles, "", "Open file descriptors."},
	{mostFiles, "", "File descriptors that the process may open."},
	{"process.uptime", "s", "Time since the start of the process."},
}

// process makes the instruments of the process. A value that the system does not tell is missing.
func process(m metric.Meter) error {
	began := time.Now()
	_, err := m.Float64ObservableCounter("process.cpu.time", metric.WithUnit("s"),
		metric.WithDescription("CPU time of the process."),
		metric.WithFloat64Callback(func(_ context.Context, o metric.Float64Observer) error {
			if seconds := cpuTime().Seconds(); seconds > 0 {
				o.Observe(seconds)
			}
			return nil
		}))
	if err != nil {
		return err
	}
	return observe(m, nil, processGauges, func(set reading) {
		samples := []metrics.Sample{{Name: goroutines}, {Name: goMemory}, {Name: released}}
		metrics.Read(samples)
		set("junction.goroutines", int64(samples[0].Value.Uint64()))
		set("go.memory.used", int64(samples[1].Value.Uint64()-samples[2].Value.Uint64()))
		set("process.uptime", int64(time.Since(began).Seconds()))
		for name, value := range readSystem() {
			if value > 0 {
				set(name, value)
			}
		}
	})
}
