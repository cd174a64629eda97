package main

import (
	"crypto/tls"
	"errors"
	"os"
	"sync/atomic"
	"time"
)

// Call is a CallPlan with its requests.
type Call struct {
	templates []*Template
	expect    Expect
}

// Load is what all workers share.
type Load struct {
	plan  *Plan
	tls   *tls.Config
	calls []Call

	// ready is closed when all are connected; begun is set before.
	ready chan struct{}
	begun time.Time
	// begins and answers count Pods.
	begins, answers atomic.Int64
	// stopped is set after the measured window.
	stopped atomic.Bool
}

// Sample is one Pod's answer.
type Sample struct {
	answered time.Time
	latency  time.Duration
}

// Worker sends one Pod at a time.
type Worker struct {
	load       *Load
	address    string
	fresh      *Fresh
	connection *Connection
	timer      *Timer
	buffer     []byte
	samples    []Sample
}

// connect prepares a worker; its connection is kept unless each Pod has its own.
func (load *Load) connect(address string) (*Worker, error) {
	worker := &Worker{load: load, address: address, fresh: newFresh(&load.plan.Placeholders)}
	var err error
	if load.plan.Rate != 0 {
		if worker.timer, err = newTimer(); err != nil {
			return nil, err
		}
	}
	if !load.plan.NewConnections {
		worker.connection, err = dial(address, load.tls)
	}
	return worker, err
}

// work sends Pods until the window is over.
func (worker *Worker) work() error {
	load, interval := worker.load, worker.load.plan.interval()
	<-load.ready
	for !load.stopped.Load() {
		number := load.begins.Add(1) - 1
		from := time.Now()
		if worker.timer != nil {
			// Latency counts from when the Pod was due, which a late answer to an earlier one does not change.
			from = load.begun.Add(time.Duration(number) * interval)
			if err := worker.timer.wait(from); errors.Is(err, os.ErrClosed) {
				return nil
			} else if err != nil {
				return err
			}
		}
		if err := worker.admit(number); err != nil {
			return err
		}
		answered := time.Now()
		load.answers.Add(1)
		worker.samples = append(worker.samples, Sample{answered, answered.Sub(from)})
	}
	return nil
}

// admit makes all calls about a Pod.
func (worker *Worker) admit(number int64) error {
	if worker.load.plan.NewConnections {
		var err error
		if worker.connection, err = dial(worker.address, worker.load.tls); err != nil {
			return err
		}
	}
	worker.fresh.nextPod()
	for index := range worker.load.calls {
		call := &worker.load.calls[index]
		worker.fresh.nextReview()
		worker.buffer = call.templates[number%int64(len(call.templates))].render(worker.buffer, worker.fresh)
		answer, err := worker.connection.exchange(worker.buffer, call.expect.status())
		if err != nil {
			return err
		}
		if err := call.expect.check(answer, worker.fresh.ReviewUID); err != nil {
			return err
		}
	}
	if worker.load.plan.NewConnections {
		return worker.connection.close()
	}
	return nil
}
