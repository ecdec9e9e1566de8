package projections

import (
	"encoding/binary"

	"github.com/hoplog/hoplog/commands"
)

// answers is what the accepted envelopes of a partition say which command lies at which offset of the command topic. Eight
// bytes of an id tell commands apart; a billion of them fit in what a verification may take.
type answers struct {
	topic string
	from  int64
	to    int64
	ids   []uint64 // by offset - from; 0: no envelope answers it
}

// Commands tells, before the first Add, which command topic the partition answers, and that it holds the commands [from, to).
// They are shown to Command after the last Add.
func (v *Verifier) Commands(topic string, from, to int64) {
	v.answers = answers{topic: topic, from: from, to: to}
}

func (a *answers) take(offset int64, id []byte) {
	i := offset - a.from
	if i < 0 || offset >= a.to || len(id) != 16 {
		return
	}
	for int64(len(a.ids)) <= i {
		a.ids = append(a.ids, 0)
	}
	a.ids[i] = binary.BigEndian.Uint64(id)
}

// Command compares the next command of the partition's command topic with the envelope that answers its offset.
func (v *Verifier) Command(offset int64, value []byte) {
	i := offset - v.answers.from
	if i < 0 || i >= int64(len(v.answers.ids)) || v.answers.ids[i] == 0 {
		return
	}
	id := commands.RecordID(value)
	if binary.BigEndian.Uint64(id[:]) != v.answers.ids[i] {
		v.all.add(Problem{Kind: ProblemCommand, Topic: v.answers.topic, Partition: v.partition, Offset: offset,
			Detail: "the command here is not the one that an envelope answers: commands were lost, repeated or moved"})
	}
}
