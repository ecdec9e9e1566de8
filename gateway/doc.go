// Package gateway is what the world talks to over HTTP: the command API with its page (api*.go, submit.go), and the redirect
// data plane with its clicks (redirect*.go, click*.go).
//
// Invariants:
//   - The API decides nothing: it refuses what has no form or no key, and tells what the log accepted and its own read
//     models can show. What schemas/openapi.yaml does not describe, it does not do.
//   - A redirect never waits for a click, for the log, or for ClickHouse.
//
// Of its own sub-folders it imports only those that do not know it: how HTTP/1.1 is read and connections are served (http1,
// eventloop, proxyproto). app puts the parts together.
package gateway
