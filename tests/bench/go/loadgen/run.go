package main

import (
	"slices"
	"time"
)

// Result is what the Pods that were answered in the window have taken.
type Result struct {
	Count     int                `json:"count"`
	Seconds   float64            `json:"seconds"`
	LatencyUS Latency            `json:"latency_us"`
	CPU       map[string]float64 `json:"cpu_seconds"`
}

// Latency is that of a Pod, all its calls together.
type Latency struct {
	P50 float64 `json:"p50"`
	P90 float64 `json:"p90"`
	P99 float64 `json:"p99"`
	Max float64 `json:"max"`
}

func run(plan *Plan) (*Result, error) {
	config, err := plan.Credentials.tlsConfig()
	if err != nil {
		return nil, err
	}
	load := &Load{plan: plan, tls: config, ready: make(chan struct{})}
	for _, call := range plan.Calls {
		templates := make([]*Template, len(call.Bodies))
		for index, body := range call.Bodies {
			templates[index] = newTemplate(plan, &call, body)
		}
		load.calls = append(load.calls, Call{templates, call.Expect})
	}
	workers := make([]*Worker, plan.Connections)
	for index := range workers {
		if workers[index], err = load.connect(plan.Addresses[index%len(plan.Addresses)]); err != nil {
			return nil, err
		}
	}
	return load.measure(workers)
}

// measure lets the workers work, and returns what they did between two readings of the CPU clocks. On a busy machine the
// window stays open until there are answers.
func (load *Load) measure(workers []*Worker) (*Result, error) {
	ended := make(chan error, len(workers))
	for _, worker := range workers {
		go func() { ended <- worker.work() }()
	}
	load.begun = time.Now()
	close(load.ready)

	if err := undisturbed(load.begun.Add(load.plan.warmUp()), ended); err != nil {
		return nil, err
	}
	before, err := readCPU(load.plan.Processes)
	if err != nil {
		return nil, err
	}
	opened, earlier := time.Now(), load.answers.Load()
	for until := opened.Add(load.plan.window()); ; until = time.Now().Add(time.Millisecond) {
		if err := undisturbed(until, ended); err != nil {
			return nil, err
		}
		// Each worker may count one answer later than it was there.
		if load.answers.Load() > earlier+int64(len(workers)) {
			break
		}
	}
	after, err := readCPU(load.plan.Processes)
	if err != nil {
		return nil, err
	}
	closed := time.Now()
	if err := load.stop(workers, ended); err != nil {
		return nil, err
	}
	for name := range after {
		after[name] -= before[name]
	}
	return summary(workers, opened, closed, after), nil
}

// undisturbed waits until then; it returns the error of a worker that has failed meanwhile.
func undisturbed(until time.Time, ended <-chan error) error {
	select {
	case <-time.After(time.Until(until)):
		return nil
	case err := <-ended:
		return err
	}
}

// stop waits for all workers: each ends after the answer that it is waiting for.
func (load *Load) stop(workers []*Worker, ended <-chan error) error {
	load.stopped.Store(true)
	for _, worker := range workers {
		if worker.timer != nil {
			_ = worker.timer.file.Close()
		}
	}
	for range workers {
		if err := <-ended; err != nil {
			return err
		}
	}
	return nil
}

func summary(workers []*Worker, opened, closed time.Time, cpu map[string]float64) *Result {
	var latencies []time.Duration
	for _, worker := range workers {
		for _, sample := range worker.samples {
			if !sample.answered.Before(opened) && !sample.answered.After(closed) {
				latencies = append(latencies, sample.latency)
			}
		}
	}
	slices.Sort(latencies)
	quantile := func(share float64) float64 {
		index := min(int(share*float64(len(latencies))), len(latencies)-1)
		return float64(latencies[index].Nanoseconds()) / 1e3
	}
	return &Result{
		Count:     len(latencies),
		Seconds:   closed.Sub(opened).Seconds(),
		LatencyUS: Latency{quantile(0.5), quantile(0.9), quantile(0.99), quantile(1)},
		CPU:       cpu,
	}
}
