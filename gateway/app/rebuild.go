package app

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"

	"github.com/spf13/cobra"
)

// rebuildReport is what a rebuild found, as `replay --rebuild` shows it.
type rebuildReport struct {
	Records   int64    `json:"records"`   // folded
	Buckets   int      `json:"buckets"`   // that hold anything
	Differing []uint32 `json:"differing"` // buckets that the live store had wrong
	Positions []int64  `json:"positions"` // at which the two were compared, by partition
}

// rebuildStep is a line of the process's answer as its asker reads it; see rebuildLine.
type rebuildStep struct {
	Done   int64          `json:"done"`
	Total  int64          `json:"total"`
	Report *rebuildReport `json:"report"`
	Error  string         `json:"error"`
}

// rebuild asks the process at the admin address to build its redirects again.
func rebuild(c *cobra.Command, s settings) error {
	addr := s.GetString(setAdmin)
	req, err := http.NewRequestWithContext(c.Context(), http.MethodPost, "http://"+addr+"/rebuild/redirects", nil)
	if err != nil {
		return usagef("admin address: %w", err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return fmt.Errorf("no process answers at the admin address %s: is `hoplog dev` running? Name the process with --admin (%w)", addr, err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK && resp.StatusCode != http.StatusConflict {
		return fmt.Errorf("the admin address %s answers %s: is it that of a hoplog process?", addr, resp.Status)
	}
	report, err := followRebuild(resp.Body, newProgress(c.ErrOrStderr()))
	if err != nil {
		return fmt.Errorf("rebuilding redirects: %w", err)
	}
	if report.Differing == nil {
		report.Differing = []uint32{}
	}
	if s.GetBool("json") {
		err = printJSON(c.OutOrStdout(), report)
	} else {
		err = report.print(c.OutOrStdout())
	}
	if err == nil && len(report.Differing) > 0 {
		return errSilent // it is right now, and somebody should know that it was not
	}
	return err
}

// errCut: the process ended, or the connection did, before the rebuild was through.
var errCut = errors.New("the process stopped answering before the rebuild was done; its live redirects are what they were")

// followRebuild reads the answer line by line up to the report.
func followRebuild(answer io.Reader, told *progress) (*rebuildReport, error) {
	told.begin("rebuilding", -1)
	defer told.end()
	for lines := json.NewDecoder(answer); ; {
		var step rebuildStep
		if err := lines.Decode(&step); errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			return nil, errCut
		} else if err != nil {
			return nil, fmt.Errorf("reading the answer: %w", err)
		}
		switch {
		case step.Error != "":
			return nil, errors.New(step.Error)
		case step.Report != nil:
			return step.Report, nil
		}
		told.set(step.Done, step.Total)
	}
}

func (r *rebuildReport) print(w io.Writer) error {
	_, err := fmt.Fprintf(w, "redirects are rebuilt from %d records and switched; %d buckets compared, %d differed\n", r.Records, r.Buckets, len(r.Differing))
	if err == nil && len(r.Differing) > 0 {
		_, err = fmt.Fprintf(w, "the live redirects were wrong in these buckets and are right now: %v\n", r.Differing)
	}
	return err
}
