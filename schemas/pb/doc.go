// Package pb is the Go code of the protobuf contracts in schemas/proto, by protoc-gen-go and vtprotobuf.
// Everything else in this folder is generated (make generate) and never edited; it imports nothing of this module.
package pb
