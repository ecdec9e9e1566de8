package bench

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestReplayOfASmallLog(t *testing.T) {
	dir := t.TempDir()
	steps := map[string]bool{}
	setup := Setup{Dir: dir, Version: "v1", Progress: func(step string, _, _ int64) { steps[step] = true }}
	report := NewReport("replay", &setup, time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), map[string]any{"events": 5001})
	result, err := Replay(context.Background(), ReplayConfig{Setup: setup, Events: 5001, Rounds: 2})
	if err != nil {
		t.Fatal(err)
	}
	if result.PerSecond <= 0 || result.TailPerSecond <= 0 || len(result.Rounds) != 2 || result.Links < 4490 || result.Links > 4510 || result.LinksLookedUp < 1000 || result.StoreBytes <= 0 {
		t.Errorf("%+v", result)
	}
	if !steps["filling the log"] || !steps["round 2 of 2: replay"] {
		t.Errorf("steps told: %v", steps)
	}
	if left, _ := os.ReadDir(dir); len(left) > 0 {
		t.Errorf("it leaves %v", left)
	}
	report.Result = result
	checkReport(t, report)
}

func checkReport(t *testing.T, report *Report) {
	t.Helper()
	var text bytes.Buffer
	if err := report.Print(&text); err != nil || !strings.Contains(text.String(), "log to Pebble") || !strings.Contains(text.String(), "floor: replayed events/s") {
		t.Errorf("%v:\n%s", err, text.String())
	}
	path, err := report.Save(filepath.Join(t.TempDir(), "results"))
	if err != nil || filepath.Base(path) != "20260102-030405-replay.json" {
		t.Fatal(path, err)
	}
	saved, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var again struct {
		Scenario string
		Machine  Machine
		Result   ReplayResult
	}
	if err := json.Unmarshal(saved, &again); err != nil || again.Scenario != "replay" || again.Machine.Hoplog != "v1" || again.Result.Events != 5001 {
		t.Errorf("%v: %s", err, saved)
	}
}

func TestPaceIsARatePerSlice(t *testing.T) {
	var p pace
	began := time.Now()
	p.begin(began)
	p.note(began.Add(50*time.Millisecond), 10)
	p.note(began.Add(100*time.Millisecond), 30)
	p.note(began.Add(300*time.Millisecond), 50)
	if len(p.perSecond) != 2 || int(p.perSecond[0]+0.5) != 300 || int(p.perSecond[1]+0.5) != 100 {
		t.Error(p.perSecond)
	}
}
