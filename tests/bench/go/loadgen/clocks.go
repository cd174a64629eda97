package main

import (
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// cpuOfProcess is CPUCLOCK_SCHED: user and system time of all threads of a process, to the nanosecond.
const cpuOfProcess = 2

// generator is the name of this process in Result.CPUSeconds.
const generator = "generator"

// readCPU returns the CPU seconds so far of each group of processes, and of this one.
func readCPU(processes map[string][]int) (map[string]float64, error) {
	spent := map[string]float64{}
	var moment unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_PROCESS_CPUTIME_ID, &moment); err != nil {
		return nil, err
	}
	spent[generator] = time.Duration(moment.Nano()).Seconds()
	for name, pids := range processes {
		for _, pid := range pids {
			// As clock_getcpuclockid(3) does.
			if err := unix.ClockGettime(int32(^pid<<3|cpuOfProcess), &moment); err != nil {
				return nil, fmt.Errorf("CPU time of %s, process %d: %w", name, pid, err)
			}
			spent[name] += time.Duration(moment.Nano()).Seconds()
		}
	}
	return spent, nil
}

// Timer waits to the microsecond: the runtime's own timers are late by up to a millisecond.
type Timer struct {
	file *os.File
	fd   int
}

func newTimer() (*Timer, error) {
	fd, err := unix.TimerfdCreate(unix.CLOCK_MONOTONIC, unix.TFD_NONBLOCK|unix.TFD_CLOEXEC)
	if err != nil {
		return nil, err
	}
	return &Timer{os.NewFile(uintptr(fd), "timer"), fd}, nil
}

// wait returns at once where the moment has passed.
func (timer *Timer) wait(until time.Time) error {
	left := time.Until(until)
	if left <= 0 {
		return nil
	}
	alarm := unix.ItimerSpec{Value: unix.NsecToTimespec(left.Nanoseconds())}
	if err := unix.TimerfdSettime(timer.fd, 0, &alarm, nil); err != nil {
		return err
	}
	var expirations [8]byte
	_, err := timer.file.Read(expirations[:])
	return err
}
