package app

// Visitors and callers must not take the descriptors that the stores and the log need: who asks opens sockets, who answers
// opens files.
const (
	ownDescriptors  = 2048   // of stores, the log, and whatever else
	mostConnections = 65_536 // of one listener
	apiShare        = 8      // the API's part of what a listener of redirects may have
)

// connections is how many one of so many listeners of the redirects may have, of so many descriptors in all.
func connections(descriptors, listeners uint64) int {
	if descriptors == 0 {
		return mostConnections
	}
	own := min(ownDescriptors, descriptors/2)
	return int(max(1, min(mostConnections, (descriptors-own)*apiShare/(listeners*apiShare+1))))
}

// apiConnections is how many the API may have.
func apiConnections(descriptors uint64) int { return max(1, connections(descriptors, 2)/apiShare) }

// redirectListeners is how many listeners the redirects have: plain, and perhaps TLS.
func (s settings) redirectListeners() uint64 {
	if s.GetString("redirect-tls") != "" {
		return 2
	}
	return 1
}
