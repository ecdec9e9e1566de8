package commands_test

import (
	"testing"

	"github.com/hoplog/hoplog/schemas/pb"
)

// The writer checks the form first, which says the same; the decider does not lean on it.
func TestSentence4AddressedLinkRoutesToItsBucket(t *testing.T) {
	c := status(pb.StatusAction_DISABLE)
	c.Bucket++
	given(t, made(t, func(*pb.LinkContent) {})).when(c).refused("invalid_request", "code")
}
