package gateway

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"sync/atomic"
	"testing"
)

// The whole write path with its load beside it: HTTP, two durable hops on the embedded broker, and both read models.
func BenchmarkAPICreate(b *testing.B) {
	r := newAPIRig(b)
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 256}}
	var n, refused atomic.Int64
	b.SetParallelism(128)
	b.ReportAllocs()
	b.ResetTimer()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			body := fmt.Appendf(nil, `{"target":"https://example.com/landing/%d?utm_source=bench"}`, n.Add(1))
			if status := apiPost(b, client, r.server.URL+"/v1/links", body); status != http.StatusCreated {
				refused.Add(1)
			}
		}
	})
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "creates/s")
	b.ReportMetric(float64(refused.Load()), "refused")
}

func BenchmarkAPIBatch(b *testing.B) {
	r := newAPIRig(b)
	var body bytes.Buffer
	body.WriteString(`{"links":[`)
	for i := range maxBatchRows {
		fmt.Fprintf(&body, `{"target":"https://example.com/landing/%d?utm_source=bench"},`, i)
	}
	body.Truncate(body.Len() - 1)
	body.WriteString(`]}`)
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 16}}
	b.SetParallelism(2)
	b.ReportAllocs()
	b.ResetTimer()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			if status := apiPost(b, client, r.server.URL+"/v1/links:batch", body.Bytes()); status != http.StatusOK {
				b.Errorf("status %d", status)
			}
		}
	})
	b.ReportMetric(float64(b.N)*maxBatchRows/b.Elapsed().Seconds(), "links/s")
}

func apiPost(b *testing.B, client *http.Client, url string, body []byte) int {
	request, err := http.NewRequestWithContext(b.Context(), http.MethodPost, url, bytes.NewReader(body))
	if err != nil {
		b.Fatal(err)
	}
	request.Header.Set("Authorization", "Bearer "+apiTestAlice)
	response, err := client.Do(request)
	if err != nil {
		b.Error(err)
		return 0
	}
	defer response.Body.Close()
	_, _ = io.Copy(io.Discard, response.Body)
	return response.StatusCode
}
