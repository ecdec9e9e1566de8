package bench

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
)

// adminLimit bounds an answer of an admin address.
const adminLimit = 64 << 20

// askAdmin reads what a process answers at its admin address.
func askAdmin(ctx context.Context, admin, path string) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+admin+path, nil)
	if err != nil {
		return nil, fmt.Errorf("asking %s: %w", path, err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, fmt.Errorf("asking %s: %w", path, err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(io.LimitReader(resp.Body, adminLimit))
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("it answers %s", resp.Status)
	}
	if err != nil {
		return nil, fmt.Errorf("asking %s: %w", path, err)
	}
	return text, nil
}

// statusOf reads what a process says of itself.
func statusOf(ctx context.Context, admin string, into any) error {
	text, err := askAdmin(ctx, admin, "/status")
	if err != nil {
		return err
	}
	if err := json.Unmarshal(text, into); err != nil {
		return fmt.Errorf("reading the status: %w", err)
	}
	return nil
}

// metricsOf reads a process's metrics, by name with labels.
func metricsOf(ctx context.Context, admin string) (map[string]float64, error) {
	text, err := askAdmin(ctx, admin, "/metrics")
	if err != nil {
		return nil, err
	}
	figures := map[string]float64{}
	for lines := bufio.NewScanner(bytes.NewReader(text)); lines.Scan(); {
		name, value := cutLast(lines.Text(), " ")
		if figure, err := strconv.ParseFloat(value, 64); err == nil && !strings.HasPrefix(name, "#") {
			figures[name] = figure
		}
	}
	return figures, nil
}
