//go:build !linux

package bench

import (
	"context"
	"syscall"
	"time"
)

func diesWithUs() *syscall.SysProcAttr { return nil }

func cpuOfSelf() time.Duration { return 0 }

func (l *load) run(context.Context) (*loaded, error) { return nil, ErrPlatform }
