package events_test

import (
	"encoding/hex"
	"encoding/json"
	"os"
	"strconv"
	"testing"

	"github.com/hoplog/hoplog/events"
)

// The vectors were made by another implementation of xxhash64.
func TestRoutingVectors(t *testing.T) {
	raw, err := os.ReadFile("../schemas/routing.json")
	if err != nil {
		t.Fatal(err)
	}
	var file struct {
		Vectors []struct {
			Namespace, Code string
			RouteKeyHex     string `json:"route_key_hex"`
			Bucket          uint32
			Partition       map[string]int32
		}
	}
	if err := json.Unmarshal(raw, &file); err != nil || len(file.Vectors) == 0 {
		t.Fatalf("%d vectors, %v", len(file.Vectors), err)
	}
	for _, v := range file.Vectors {
		key := events.RouteKey(v.Namespace, v.Code)
		if hex.EncodeToString([]byte(key)) != v.RouteKeyHex {
			t.Errorf("%s %s: route key %x", v.Namespace, v.Code, key)
		}
		if b := events.BucketOf(v.Namespace, v.Code); b != v.Bucket || events.BucketOfKey([]byte(key)) != b {
			t.Errorf("%s %s: bucket %d, wanted %d", v.Namespace, v.Code, b, v.Bucket)
		}
		for count, want := range v.Partition {
			p, _ := strconv.Atoi(count)
			if got := events.PartitionOf(v.Bucket, p); got != want {
				t.Errorf("bucket %d of %d partitions: partition %d, wanted %d", v.Bucket, p, got, want)
			}
		}
	}
}

func TestBucketsOfAPartition(t *testing.T) {
	for p := 1; p <= events.Buckets; p *= 2 {
		next := uint32(0)
		for partition := range int32(p) {
			first, last := events.BucketsOf(partition, p)
			if first != next || events.PartitionOf(first, p) != partition || events.PartitionOf(last, p) != partition {
				t.Fatalf("partition %d of %d: buckets %d to %d", partition, p, first, last)
			}
			next = last + 1
		}
		if next != events.Buckets {
			t.Fatalf("%d partitions hold %d buckets", p, next)
		}
	}
}

func TestRecordKeys(t *testing.T) {
	for _, c := range []struct {
		key  []byte
		ok   bool
		what string
	}{
		{events.BucketKey(1024), true, "own bucket"},
		{events.BucketKey(1023), false, "another partition's bucket"},
		{events.BucketKey(4096), false, "no bucket"},
		{events.BucketKey(4097), false, "the partition's own bucket for bad keys"},
		{nil, false, "empty"},
		{[]byte{4}, false, "one byte"},
		{[]byte{4, 0, 0}, false, "three bytes"},
	} {
		bucket, err := events.ParseBucketKey(c.key, 1, 4)
		if (err == nil) != c.ok || c.ok && bucket != 1024 {
			t.Errorf("%s: %d, %v", c.what, bucket, err)
		}
	}
}

func TestPositions(t *testing.T) {
	for _, text := range []string{"link/1731/42", "link/0/1", "control/0/7", "link/4099/3"} {
		p, err := events.ParsePosition(text)
		if err != nil || p.String() != text {
			t.Errorf("%s: %v, %v", text, p, err)
		}
	}
	for _, text := range []string{"", "link", "link/1", "link/1/2/3", "link/01/2", "link/+1/2", "link/-1/2", "link/9000/1", "control/1/1", "other/1/1", "link/1/99999999999999999999", " link/1/2"} {
		if p, err := events.ParsePosition(text); err == nil {
			t.Errorf("%q was read as %v", text, p)
		}
	}
}
