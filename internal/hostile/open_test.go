package hostile_test

import "strings"

// open tells the inputs that are answered as if nothing were wrong with them: what
// is in the context of a connection is for client and endpoint to judge, within
// its size.
func open(in *input) bool {
	return strings.HasPrefix(strings.TrimPrefix(in.field, "connection."), "context.")
}
