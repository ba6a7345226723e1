// Package rotation holds the test of what a change of certificates does: two whole
// domains of the SDK's parts, with the policies of the stock commands on, and our
// proxy between them as two processes, with all policies on that it has.
//
// All certificates live for seconds, tokens as long as they do, and each side renews
// its own in turn, while connections refresh, registrations are made and a watch is
// held. Behind that the roots of both domains change.
package rotation
