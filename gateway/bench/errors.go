package bench

import "errors"

// Errors of a scenario.
var (
	// ErrNotLoopback: the target is not on this machine. Load on others is refused, whoever they are.
	ErrNotLoopback = errors.New("not a loopback address: load is only sent to this machine")
	// ErrWrong: what was loaded was not done right. The figures are there all the same.
	ErrWrong = errors.New("the load was not answered right")
	// ErrNoStart: a process to measure did not start.
	ErrNoStart = errors.New("the process to measure did not start")
	// ErrFillOwn: only the log of a process of the scenario's own, with the embedded broker, can be filled.
	ErrFillOwn = errors.New("only the log of a process that the scenario starts can be filled")
	// ErrResult: a file is not the result of a scenario, or of a newer hoplog.
	ErrResult = errors.New("not a result of a scenario")
	// ErrPlatform: the load generator needs Linux.
	ErrPlatform = errors.New("the load generator needs Linux")
)
