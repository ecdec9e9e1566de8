package commands

import (
	"bytes"
	"crypto/sha256"

	"github.com/hoplog/hoplog/schemas/pb"
)

// ControlRequest is what the control state keeps of a write with an Idempotency-Key.
type ControlRequest struct {
	*pb.StoredRequest
	// Events are what the write led to; none if it was refused or nothing had to change.
	Events []*pb.Event
	Actor  string
	// Seq is the control position of its envelope.
	Seq uint64
}

// controlRequests are the requests of the present generation and of the one before. A generation lasts as long as a key
// counts, so that dropping the one before drops only what no longer does.
type controlRequests struct {
	beganUS     int64
	now, before cowMap[*ControlRequest]
}

func controlRequestKey(owner, key string) string { return owner + "\x00" + key }

func (r controlRequests) get(owner, key string) *ControlRequest {
	name := controlRequestKey(owner, key)
	if found, ok := r.now.get(name); ok {
		return found
	}
	found, _ := r.before.get(name)
	return found
}

// with keeps an envelope's outcome under its request key, if it is to be kept.
func (r controlRequests) with(e *pb.Envelope) controlRequests {
	if !Stores(e) {
		return r
	}
	timeUS := e.GetStamp().GetTimeUs()
	if !KeyCounts(r.beganUS, timeUS) {
		r = controlRequests{beganUS: timeUS, before: r.now}
	}
	r.now = r.now.with(controlRequestKey(e.GetRequest().GetOwner(), e.GetRequest().GetKey()), &ControlRequest{
		StoredRequest: &pb.StoredRequest{BodyHash: e.GetRequest().GetBodyHash(), TimeUs: timeUS, Outcome: e.GetOutcome()},
		Events:        e.GetEvents(), Actor: e.GetActor(), Seq: e.GetSeq()})
	return r
}

// Request returns what is stored of a write to the control plane under an owner's request key, nil if nothing is. Whether the
// key still counts, KeyCounts says.
func (c *Control) Request(owner, key string) *ControlRequest {
	if c == nil || key == "" {
		return nil
	}
	return c.requests.get(owner, key)
}

// ControlBodyHash returns the SHA-256 of what a control command asks for, whoever sends it and when. What is drawn for a new key
// is not asked for.
func ControlBodyHash(c *pb.ControlCommand) []byte {
	kind := c.GetKind()
	if key := c.GetAddKey(); key != nil {
		kind = &pb.ControlCommand_AddKey{AddKey: &pb.ApiKey{Owner: key.GetOwner(), Admin: key.GetAdmin(), Note: key.GetNote()}}
	}
	asked, err := (&pb.ControlCommand{Kind: kind}).MarshalVT()
	if err != nil {
		panic(err) // a message without required fields or extensions always marshals
	}
	sum := sha256.Sum256(asked)
	return sum[:]
}

// checkControlRequest judges the form of a control command's request.
func checkControlRequest(r *pb.RequestRef) *Refusal {
	if r != nil && (r.GetOwner() == "" || r.GetKey() == "" || len(r.GetBodyHash()) != sha256.Size) {
		return Refuse(CodeInvalidRequest, "", "a request has an owner, a key and a body hash of 32 bytes")
	}
	if r == nil {
		return nil
	}
	return checkNames(r.GetOwner())
}

// replayControl answers a request whose key was met before.
func replayControl(stored *ControlRequest, r *pb.RequestRef, nowUS int64) (Decision, bool) {
	if stored == nil || !KeyCounts(stored.GetTimeUs(), nowUS) {
		return Decision{}, false
	}
	if !bytes.Equal(stored.GetBodyHash(), r.GetBodyHash()) {
		return Refuse(CodeIdempotencyKeyReused, "", "this Idempotency-Key was used for another request; use a new key").Decision(), true
	}
	was := stored.GetOutcome()
	return Decision{Outcome: &pb.Outcome{Error: was.GetError(), Detail: was.GetDetail(), Field: was.GetField(), Replayed: true}}, true
}
