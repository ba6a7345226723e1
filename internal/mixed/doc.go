// Package mixed holds the tests of this proxy beside stock ones: the SDK's own
// chain with the stock command's settings is at the other end of the hop, or in
// the place that ours takes over.
//
// Every proxy is a process of its own, and everything between them is real: TCP
// on loopback, mutual TLS, tokens. Only their neighbours are small: a registry
// that knows names, and a far side whose words the test chooses. A scenario ends
// with an event that it asks for, so that nothing unasked can still be on its
// way.
package mixed
