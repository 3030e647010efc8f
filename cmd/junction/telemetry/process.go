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

// process makes the instruments of the process. A value that the system does not tell is missing.
func process(m metric.Meter) error {
	began := time.Now()
	var err error
	gauge := func(name, unit, description string) metric.Int64ObservableGauge {
		g, problem := m.Int64ObservableGauge(name, metric.WithUnit(unit), metric.WithDescription(description))
		if problem != nil {
			err = problem
		}
		return g
	}
	count := gauge("junction.goroutines", "", "Goroutines.")
	memory := gauge("go.memory.used", "By", "Memory that the Go runtime uses, without what it gave back.")
	resident := gauge("process.memory.usage", "By", "Physical memory of the process.")
	open := gauge("junction.descriptors.open", "", "Open file descriptors.")
	most := gauge("junction.descriptors.limit", "", "File descriptors that the process may open.")
	cpu, problem := m.Float64ObservableCounter("process.cpu.time", metric.WithUnit("s"),
		metric.WithDescription("CPU time of the process."))
	if problem != nil {
		return problem
	}
	uptime := gauge("process.uptime", "s", "Time since the start of the process.")
	if err != nil {
		return err
	}
	_, err = m.RegisterCallback(func(_ context.Context, o metric.Observer) error {
		samples := []metrics.Sample{{Name: goroutines}, {Name: goMemory}, {Name: released}}
		metrics.Read(samples)
		o.ObserveInt64(count, int64(samples[0].Value.Uint64()))
		o.ObserveInt64(memory, int64(samples[1].Value.Uint64()-samples[2].Value.Uint64()))
		o.ObserveInt64(uptime, int64(time.Since(began).Seconds()))
		observeSystem(o, cpu, map[system]metric.Int64Observable{residentMemory: resident, openFiles: open,
			mostFiles: most})
		return nil
	}, count, memory, resident, open, most, cpu, uptime)
	return err
}

// system is a value of the operating system.
type system int

const (
	residentMemory system = iota
	openFiles
	mostFiles
)

// observeSystem observes the values that the operating system has.
func observeSystem(o metric.Observer, cpu metric.Float64Observable, all map[system]metric.Int64Observable) {
	values, seconds := readSystem()
	if seconds > 0 {
		o.ObserveFloat64(cpu, seconds)
	}
	for s, v := range values {
		if v > 0 {
			o.ObserveInt64(all[s], v)
		}
	}
}
