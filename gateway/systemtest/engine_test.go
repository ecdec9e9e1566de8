package systemtest

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// enginePID finds the process's ClickHouse child.
func enginePID(t *testing.T, p *process) int {
	t.Helper()
	tasks, err := filepath.Glob("/proc/" + strconv.Itoa(p.cmd.Process.Pid) + "/task/*/children")
	if err != nil {
		t.Fatal(err)
	}
	for _, task := range tasks {
		raw, err := os.ReadFile(task)
		if err != nil {
			continue
		}
		if list := strings.Fields(string(raw)); len(list) > 0 {
			pid, err := strconv.Atoi(list[0])
			if err != nil {
				t.Fatal(err)
			}
			return pid
		}
	}
	t.Fatal("no ClickHouse child")
	return 0
}
