package commands

import (
	"crypto/sha256"

	"github.com/hoplog/hoplog/events"
	"github.com/hoplog/hoplog/schemas/pb"
)

// BucketFor returns the bucket whose writer decides a command: the link's own, or for a create without a custom code the
// one that the request (with dedupe: the target) picks, in which the writer then draws a code.
func BucketFor(c *pb.LinkCommand) uint32 {
	create := c.GetCreate()
	switch {
	case create == nil || c.GetCode() != "":
		return events.BucketOf(c.GetNamespace(), c.GetCode())
	case create.GetDedupe():
		return events.BucketOfKey(dedupeKey(c))
	default:
		return events.BucketOfKey([]byte(c.GetRequest().GetOwner() + "\x00" + c.GetRequest().GetKey()))
	}
}

// Fingerprint identifies (owner, namespace, target) of a create with dedupe; nil for any other command.
func Fingerprint(c *pb.LinkCommand) []byte {
	if !c.GetCreate().GetDedupe() {
		return nil
	}
	sum := sha256.Sum256(dedupeKey(c))
	return sum[:]
}

func dedupeKey(c *pb.LinkCommand) []byte {
	return []byte(c.GetRequest().GetOwner() + "\x00" + c.GetNamespace() + "\x00" + c.GetCreate().GetContent().GetTarget())
}

// BodyHash returns the SHA-256 of what a command asks for, whoever sends it and when. Two requests under one key are the
// same if and only if their hashes are.
func BodyHash(c *pb.LinkCommand) []byte {
	asked := &pb.LinkCommand{Namespace: c.GetNamespace(), Code: c.GetCode(), Kind: c.GetKind()}
	bytes, err := asked.MarshalVT()
	if err != nil {
		panic(err) // a message without required fields or extensions always marshals
	}
	sum := sha256.Sum256(bytes)
	return sum[:]
}
