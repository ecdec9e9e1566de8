package gateway

import (
	"net/netip"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/hoplog/hoplog/schemas/pb"
)

// What is written by hand is what the schema says, whichever fields there are.
func TestClickEncoderAgreesWithSchema(t *testing.T) {
	agents, encoder := newClickAgents(), &clickEncoder{}
	address, boot := netip.MustParseAddr("2001:db8:1:2::3"), [16]byte{1, 2, 3}
	clicks := map[string]Click{
		"all": {LinkID: 1 << 60, Version: 300, TimeUS: 1_700_000_000_000_000, Status: 302, Namespace: "s.example", Code: []byte("code"), UserAgent: []byte(redirectTestAgent),
			Referrer: []byte("https://News.example/x?y"), Query: []byte("utm_source=a&utm_medium=b&utm_campaign=c&utm_term=d&utm_content=e"), Address: address, Prefetch: true},
		"none": {},
		"long": {Namespace: strings.Repeat("n", 600), Code: []byte(strings.Repeat("c", 2000)), UserAgent: []byte(redirectTestBot), Referrer: []byte("https://" + strings.Repeat("r", 250) + "/"),
			Query: []byte("utm_source=" + strings.Repeat("a", 256) + "&utm_medium=" + strings.Repeat("b", 256) + "&utm_campaign=" + strings.Repeat("c", 256) + "&utm_term=" +
				strings.Repeat("d", 256) + "&utm_content=" + strings.Repeat("e", 256)), Address: address, LinkID: 1<<64 - 1, Version: 1<<64 - 1, TimeUS: -1, Status: 999},
	}
	for name, c := range clicks {
		agent := agents.of(c.UserAgent)
		want := &pb.Click{Sequence: 1<<64 - 1, LinkId: c.LinkID, Version: c.Version, TimeUs: c.TimeUS, Status: uint32(c.Status), Namespace: c.Namespace[:min(len(c.Namespace), clickMaxNamespace)],
			Code: string(clickCut(c.Code, clickMaxCode)), Class: agent.class, Device: agent.device, Os: agent.os, Browser: agent.browser, Visitor: 77,
			ReferrerHost: string(clickReferrerHost(append([]byte(nil), c.Referrer...))), Ip: clickTruncate(c.Address, nil)}
		if c.Prefetch {
			want.Class = pb.ClickClass_PREVIEW
		}
		clickReadUTM(want, append([]byte(nil), c.Query...))
		entry := encoder.append(nil, &c, want.Sequence, agent, want.Visitor)
		if len(entry) > clickMaxBytes {
			t.Errorf("%s: %d bytes", name, len(entry))
		}
		got := &pb.ClickBlock{}
		if err := proto.Unmarshal(append(clickBlockPrefix("node", "eu", boot, 9), entry...), got); err != nil {
			t.Fatal(name, err)
		}
		block := &pb.ClickBlock{SchemaVersion: clickSchemaVersion, Node: "node", Boot: boot[:], Partition: 9, Region: "eu", Clicks: []*pb.Click{want}}
		if !proto.Equal(got, block) {
			t.Errorf("%s:\n got %v\nwant %v", name, got, block)
		}
	}
}

// A visitor's own bytes are borrowed: recording changes none of them.
func TestClickRecordLeavesItsInput(t *testing.T) {
	r := newClickTestRecorder(t, &clickTestAppender{}, ClickConfig{Partitions: 1})
	referrer, query := "https://News.EXAMPLE/", "utm_source=a%20b+c"
	click := testClick(1)
	click.Referrer, click.Query = []byte(referrer), []byte(query)
	r.Record(click)
	if string(click.Referrer) != referrer || string(click.Query) != query {
		t.Errorf("%q %q", click.Referrer, click.Query)
	}
}

var benchClick = Click{LinkID: 1, Version: 1, TimeUS: 1_700_000_000_000_000, Status: 302, Namespace: "s.example", Code: []byte("bench"), UserAgent: []byte(redirectTestAgent),
	Referrer: []byte("https://news.example/today"), Address: netip.MustParseAddr("192.0.2.7")}

// BenchmarkClickRecord is what a click costs until it is in the spool: all but sending it.
func BenchmarkClickRecord(b *testing.B) {
	for name, path := range map[string]string{"memory": "", "file": b.TempDir() + "/spool"} {
		b.Run(name, func(b *testing.B) {
			recorder := newClickTestRecorder(b, &clickTestAppender{}, ClickConfig{Partitions: 16, Spool: path})
			click := benchClick
			b.ReportAllocs()
			for b.Loop() {
				recorder.Record(&click)
			}
			s := recorder.Status()
			b.ReportMetric(float64(s.Dropped)/float64(b.N), "dropped/op")
		})
	}
}

// BenchmarkClickEncode is the part of it that makes the bytes.
func BenchmarkClickEncode(b *testing.B) {
	agents, visitors, encoder := newClickAgents(), newClickVisitors([]byte("secret")), &clickEncoder{}
	click := benchClick
	var to []byte
	b.ReportAllocs()
	for i := uint64(1); b.Loop(); i++ {
		agent := agents.of(click.UserAgent)
		to = encoder.append(to[:0], &click, i, agent, visitors.number(click.TimeUS, click.Address, agent.digest))
	}
	b.ReportMetric(float64(len(to)), "B/click")
}
