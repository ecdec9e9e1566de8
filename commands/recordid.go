package commands

import (
	"crypto/sha256"

	"google.golang.org/protobuf/encoding/protowire"
)

// RecordID returns the id of the command in a record of a command topic; one that cannot be read is known by the hash of its
// bytes. Link and control commands carry the id in the same field.
func RecordID(value []byte) (id [16]byte) {
	for rest := value; len(rest) > 0; {
		number, kind, n := protowire.ConsumeTag(rest)
		if n < 0 {
			break
		}
		if number == recordIDField && kind == protowire.BytesType {
			if found, n := protowire.ConsumeBytes(rest[n:]); n > 0 && len(found) == len(id) {
				return [16]byte(found)
			}
			break
		}
		skip := protowire.ConsumeFieldValue(number, kind, rest[n:])
		if skip < 0 {
			break
		}
		rest = rest[n+skip:]
	}
	sum := sha256.Sum256(value)
	return [16]byte(sum[:len(id)])
}

// recordIDField is the field number of command_id in both kinds of commands.
const recordIDField = 2
