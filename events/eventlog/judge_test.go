package eventlog

import (
	"errors"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"
)

// A client library may split a batch, and another writer's record may land between its parts: every record's offset counts.
func TestSentence6EveryOffsetIsCompared(t *testing.T) {
	a := &Appender{topic: "events"}
	sent := func(offsets ...int64) (list []*kgo.Record) {
		for _, offset := range offsets {
			list = append(list, &kgo.Record{Offset: offset})
		}
		return list
	}
	if err := a.judge(0, nil, sent(5, 6, 7), 5); err != nil {
		t.Errorf("as expected: %v", err)
	}
	var foreign *ForeignOffsetError
	if err := a.judge(0, nil, sent(5, 6, 8), 5); !errors.As(err, &foreign) || foreign.Index != 2 || foreign.Want != 7 || foreign.Got != 8 {
		t.Errorf("the last one elsewhere: %v", err)
	}
	if err := a.judge(0, nil, sent(6, 7), 5); !errors.As(err, &foreign) || foreign.Index != 0 {
		t.Errorf("all elsewhere: %v", err)
	}
	if err := a.judge(0, nil, sent(6, 9), AnyOffset); err != nil {
		t.Errorf("anywhere: %v", err)
	}
	if err := a.judge(0, kgo.ProduceResults{{Err: errors.New("no answer")}}, sent(5), 5); !errors.Is(err, ErrUnknownOutcome) {
		t.Errorf("unanswered: %v", err)
	}
}
