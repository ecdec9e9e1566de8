package app

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/hoplog/hoplog/events/eventlog"
)

// topicInfo is a topic as `topics --json` shows it. Offsets are indexed by partition.
type topicInfo struct {
	Topic      string            `json:"topic"`
	Partitions int               `json:"partitions"`
	Replicas   int               `json:"replicas"`
	Records    int64             `json:"records"`
	Starts     []int64           `json:"starts"`
	Ends       []int64           `json:"ends"`
	Settings   map[string]string `json:"settings"`
}

func newTopics() *cobra.Command {
	c := &cobra.Command{
		Use:   "topics",
		Short: "Show the topics of the log: partitions, records, offsets and settings",
		Args:  exactArgs(0),
		RunE: func(c *cobra.Command, _ []string) error {
			s, err := load(c)
			if err != nil {
				return err
			}
			r, err := openReader(c.Context(), s)
			if err != nil {
				return err
			}
			defer r.Close()
			found, err := r.Topics(c.Context())
			if err != nil {
				return err
			}
			list := topicsOf(found)
			if s.GetBool("json") {
				return printJSON(c.OutOrStdout(), list)
			}
			return printTopics(c.OutOrStdout(), list)
		},
	}
	return withFlags(c, kafkaFlags, jsonFlag)
}

func topicsOf(found []eventlog.TopicInfo) []topicInfo {
	list := make([]topicInfo, len(found))
	for i, t := range found {
		list[i] = topicInfo{t.Topic, t.Partitions, t.Replicas, t.Records, t.Starts, t.Ends, t.Settings}
	}
	return list
}

func printTopics(w io.Writer, list []topicInfo) error {
	t := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
	fmt.Fprintln(t, "TOPIC\tPARTITIONS\tREPLICAS\tRECORDS\tOFFSETS\tSETTINGS")
	for _, topic := range list {
		var held, settings []string
		for p := range topic.Ends {
			held = append(held, fmt.Sprintf("%d–%d", topic.Starts[p], topic.Ends[p]))
		}
		if len(held) > 4 {
			held = append(held[:3], "…")
		}
		for _, key := range slices.Sorted(maps.Keys(topic.Settings)) {
			settings = append(settings, key+"="+topic.Settings[key])
		}
		fmt.Fprintf(t, "%s\t%d\t%d\t%d\t%s\t%s\n", topic.Topic, topic.Partitions, topic.Replicas, topic.Records, strings.Join(held, " "), strings.Join(settings, " "))
	}
	return t.Flush()
}
